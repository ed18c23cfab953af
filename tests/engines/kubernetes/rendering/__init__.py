"""Kubernetes objects of resources."""
