"""The version, for the package and for what writes it down."""

__version__ = "0.4.0"
