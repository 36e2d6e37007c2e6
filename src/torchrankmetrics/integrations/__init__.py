"""Bridges to other libraries; each imports its library lazily or not at all."""
