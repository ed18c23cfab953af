"""The host engine: workloads run on this machine, as document 1 describes it."""
