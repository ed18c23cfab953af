"""Registries of images, for every engine: a client, logins, and what tags mean now."""
