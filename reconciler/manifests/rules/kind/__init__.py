"""Rules about kinds other than workloads, and about tags and queries."""
