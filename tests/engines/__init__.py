"""Tests of reconciler.engines."""
