"""Probes: their pace and verdicts, and the four forms against real servers."""
