"""Tests of reconciler.manifests."""
