"""Provides ports, variables, files and secrets to containers on this host."""
