"""Certificates from an authority with the protocol ACME, for host names that a domain proves."""
