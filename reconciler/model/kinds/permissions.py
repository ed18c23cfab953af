"""What can be permitted on each kind, and what a permission brings along (docs/platform/fields.md#permissions)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.model.key import Kind

Implied = Mapping[str, tuple[str, ...]]
"""Permission to the permissions that it brings along at once."""

MANAGE = "manage"
"""Brings every permission of its kind along."""


def _kind(*plain: str, **implying: str) -> Implied:
    """A row of the table: permissions that bring nothing along, and those that do, with blanks between what."""
    table = dict.fromkeys(plain, ()) | {name: tuple(words.split()) for name, words in implying.items()}
    return table | {MANAGE: tuple(sorted({*table, MANAGE}))}


_PLAIN = _kind("create", "delete", "view", edit="view")
_USED = _kind("create", "delete", "view", edit="view", use="view")
_RUNS = "exec.runCronWorkload"
_VOLUMES = ("exec.createVolumeSnapshot", "exec.deleteVolume", "exec.deleteVolumeSnapshot", "exec.expandVolume",
            "exec.restoreVolume")  # fmt: skip

PERMISSIONS: Mapping[Kind, Implied] = {
    Kind.ORG: _kind("exec", "readMetrics", "readUsage", "view", "viewAccessReport", edit="view", readLogs="view"),
    Kind.AGENT: _USED,
    Kind.AUDITCTX: _kind("create", "view", edit="view", readAudit="view", writeAudit="view"),
    Kind.CLOUDACCOUNT: _kind("create", "delete", "view", browse="view", edit="view browse"),
    Kind.DOMAIN: _kind("create", "delete", "view", edit="view use", use="view"),
    Kind.GROUP: _PLAIN,
    Kind.GVC: _PLAIN,
    Kind.IDENTITY: _USED,
    Kind.IMAGE: _kind("delete", "view", create="pull", edit="view", pull="view"),
    Kind.IPSET: _PLAIN,
    Kind.LOCATION: _USED,
    Kind.MK8S: _PLAIN,
    Kind.POLICY: _PLAIN,
    Kind.QUOTA: _kind("create", "view", edit="view"),
    Kind.SECRET: _kind("create", "delete", "view", edit="view reveal", reveal="view", use="view"),
    Kind.SERVICEACCOUNT: _kind("addKey", "create", "delete", "view", edit="view"),
    Kind.USER: _kind("delete", "impersonate", "invite", "view", edit="view"),
    Kind.VOLUMESET: _kind("create", "delete", "view", *_VOLUMES, edit="view", exec=" ".join(_VOLUMES)),
    Kind.WORKLOAD: _kind("connect", "create", "delete", "view", _RUNS, edit="view", exec=_RUNS),
}
"""Every kind with its permissions."""


def expanded(kind: Kind, permissions: Iterable[str]) -> frozenset[str]:
    """``permissions`` on ``kind`` with all that they bring along, however indirectly; unknown ones bring nothing."""
    implied = PERMISSIONS[kind]
    found: set[str] = set()
    fresh = list(permissions)
    while fresh:
        name = fresh.pop()
        if name not in found:
            found.add(name)
            fresh.extend(implied.get(name, ()))
    return frozenset(found)
