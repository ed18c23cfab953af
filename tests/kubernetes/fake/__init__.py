"""A Kubernetes API server in memory: `tests.kubernetes.api_server` starts it."""
