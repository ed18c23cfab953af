"""Tests of the runtimes, each in a folder."""
