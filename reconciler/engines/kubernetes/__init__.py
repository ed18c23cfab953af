"""The engine that runs workloads on a Kubernetes cluster."""
