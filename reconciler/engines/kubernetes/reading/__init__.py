"""Shows what runs at a location on a cluster: replicas, logs, sessions, and which workload sends a request."""
