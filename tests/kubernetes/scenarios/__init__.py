"""The same scenarios on every engine: what people push and request, and what they see of it, step by step.

A scenario is a file in tests/cases/scenarios: manifests, requests and what replicas do, in the terms of no engine. A
`Stage` lets it happen at one engine, with a daemon of its own: the host, a fake cluster, a real one. What people see is
the transcript: status files, deployments, events, answers of commands. That of the host is a golden file; that of a
cluster must be the same, but for `differences.py`, which docs/kubernetes.md lists.
"""
