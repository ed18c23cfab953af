"""Bytes in, Documents out: values with their places, bounded; for manifests and settings alike."""
