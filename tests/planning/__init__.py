"""Tests of reconciler.planning."""
