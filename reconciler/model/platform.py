"""Facts of the platform that several parts need: how the things it mounts are addressed."""

from __future__ import annotations

SPELLING = "platform"
"""How the platform is called in the normal form; manifests may use another spelling (the setting ``scheme``)."""

SECRET_URI = f"{SPELLING}://secret/"
VOLUMESET_URI = f"{SPELLING}://volumeset/"
"""How the URIs of secrets and volume sets begin in normal form."""

STORE_SCHEMES = ("s3", "gs", "azureblob", "azurefs")
"""Schemes of object stores and file shares at a cloud provider."""

MOUNT_SCHEMES = frozenset({SPELLING, *STORE_SCHEMES, "scratch"})
"""Every scheme that a volume can have in normal form (docs/platform/workload.md#volumes)."""
