"""The host engine."""
