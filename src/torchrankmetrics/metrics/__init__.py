"""torchmetrics classes: state and synchronization, without mathematics."""
