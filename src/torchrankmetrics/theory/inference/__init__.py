"""Inference on ranks: how far an estimate can be trusted, and whether two models differ."""
