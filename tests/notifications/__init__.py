"""Tests of notifications: what is sent to whom, once."""
