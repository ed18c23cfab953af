"""Decisions on the replicas of a workload: pure functions of the desired state, the current state and the time."""
