"""Secrets that lie in files on this host."""
