"""Engines: they perform the steps of a plan and return outcomes; only this package changes the real world."""
