"""Converts compose files to manifests. Pure: a function that is passed in reads further files."""
