"""Sequential (anytime-valid) evaluation."""
