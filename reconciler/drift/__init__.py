"""Drift, the differences between recorded and observed resources: detection, records and healing."""
