"""The torchmetrics face: state and synchronisation, no mathematics."""
