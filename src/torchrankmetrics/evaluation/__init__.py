"""What is asked of rows of ranks, without torchmetrics: measures, their values, tables, intervals and comparisons."""
