"""The engine that runs workloads in a cluster."""
