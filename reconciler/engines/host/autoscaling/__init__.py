"""Autoscaling: metrics, decisions on the number of replicas, and recommendations for their size."""
