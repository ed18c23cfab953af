"""Secrets: values in files of this host, and the store that engines read."""
