"""Renders the configuration file of HAProxy."""
