"""Controllers of workloads and locations."""
