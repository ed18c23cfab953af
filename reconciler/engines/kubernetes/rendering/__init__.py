"""Kubernetes objects of resources: pure functions; the same inputs give the same objects in the same order."""
