"""The host engine runs workloads on this machine, as docs/platform/workload.md describes."""
