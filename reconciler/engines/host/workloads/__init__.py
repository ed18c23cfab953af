"""The workloads of a location: what is wanted of them, and what is observed."""
