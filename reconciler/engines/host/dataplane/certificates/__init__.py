"""Certificates of host names: where they are read, and which of them is served."""
