"""Probes of containers: their schedule, the requests, and the evaluation of results."""
