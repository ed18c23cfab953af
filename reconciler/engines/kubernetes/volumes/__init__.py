"""Volumes on a cluster: claims, their snapshots, what happens to them by itself, and moves between workloads."""
