"""Certificates over ACME, from a real authority."""
