"""What is decided about the replicas of a workload: pure functions of what is wanted, what there is, and the time."""
