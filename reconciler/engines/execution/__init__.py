"""Executes a plan: scheduling, attempts, retries and the record of outcomes."""
