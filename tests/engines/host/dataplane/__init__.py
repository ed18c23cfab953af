"""The data plane of the host engine."""
