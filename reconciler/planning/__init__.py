"""Desired and recorded in, Plan out; pure."""
