"""Ranks by exact arithmetic on the given embeddings: counted in low precision where an error bound allows it."""
