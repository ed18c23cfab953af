"""Runtimes, which start and stop containers on this host, behind one protocol."""
