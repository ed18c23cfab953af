"""Tests of the metrics that are scraped from containers."""
