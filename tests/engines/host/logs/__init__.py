"""Logs of the host engine."""
