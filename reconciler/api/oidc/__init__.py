"""Logins by OpenID Connect: people at a provider, and jobs by the tokens of their CI."""
