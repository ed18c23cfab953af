"""Controllers: of a workload, of its replicas, and of a location."""
