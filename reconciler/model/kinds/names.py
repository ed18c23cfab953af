"""The words for kinds in commands: singular, plural and short, as in `kubectl get deploy`. Imports nothing."""

from __future__ import annotations

SHORT_NAMES = {
    "auditctx": ("ctx",),
    "cloudaccount": ("ca",),
    "domain": ("dom",),
    "group": ("grp",),
    "identity": ("id",),
    "image": ("img",),
    "location": ("loc",),
    "policy": ("pol",),
    "secret": ("sec",),
    "serviceaccount": ("sa",),
    "source": ("src",),
    "volumeset": ("vs",),
    "workload": ("w", "wl"),
}
"""Kind, or ``source`` → its short names."""
_PLURALS = {"identity": "identities", "mk8s": "mk8s", "policy": "policies"}
"""The plurals that are not made by an ``s``."""


def get_plural(kind: str) -> str:
    """``workloads`` for ``workload``."""
    return _PLURALS.get(kind, f"{kind}s")


def list_kind_names(kind: str) -> tuple[str, ...]:
    """Every word for ``kind``: singular, plural, short."""
    return (kind, get_plural(kind), *SHORT_NAMES.get(kind, ()))
