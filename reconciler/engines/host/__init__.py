"""The host engine: workloads run on this machine, as docs/platform/workload.md describes."""
