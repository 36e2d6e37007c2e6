"""Candidates in slices, one on each process of a group: who holds what, and what the processes tell each other."""
