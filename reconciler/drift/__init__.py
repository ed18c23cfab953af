"""Differences between what is recorded and what is observed: detected, noted, healed."""
