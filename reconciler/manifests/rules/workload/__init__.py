"""Rules about the options of workloads."""
