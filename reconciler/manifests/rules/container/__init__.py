"""Rules about containers of workloads."""
