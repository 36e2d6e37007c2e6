"""Rows of ranks with named columns: their canonical form, their tables, their files."""
