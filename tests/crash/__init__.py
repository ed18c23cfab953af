"""Guarantees when the daemon is killed, or its disk is full, during its work."""
