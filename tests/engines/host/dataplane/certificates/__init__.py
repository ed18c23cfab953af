"""Certificates of host names."""
