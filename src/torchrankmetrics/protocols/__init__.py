"""What is ranked among what: known answers, whole evaluations of triples and alignments, categories of relations."""
