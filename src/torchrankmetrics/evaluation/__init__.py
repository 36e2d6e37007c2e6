"""Measures of rows of ranks without torchmetrics: values, tables, intervals and comparisons."""
