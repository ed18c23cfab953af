"""Checks and comparisons without a daemon: folders, commits, pull requests."""
