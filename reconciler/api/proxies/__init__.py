"""Proxies in front of the API: which of them are trusted, and how they name their clients."""
