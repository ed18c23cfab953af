"""Reads what a cluster has of a location."""
