"""Exact ranks of embeddings."""
