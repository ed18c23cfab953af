"""Tests of reconciler.pipeline."""
