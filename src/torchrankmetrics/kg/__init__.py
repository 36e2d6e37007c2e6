"""Knowledge graphs: known triples, evaluation of triples, alignment, temporal facts, complex queries."""
