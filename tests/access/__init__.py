"""The decision function of access."""
