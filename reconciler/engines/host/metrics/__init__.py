"""Scrapes the metrics of containers, and exposes those of all replicas as one page for Prometheus."""
