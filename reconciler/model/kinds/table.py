"""The table of all kinds: view, scope, order and permissions.

A kind also has a schema with its name, and may have rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache, lru_cache
from importlib import import_module

import msgspec

from reconciler.model.kinds.base import Envelope

Permissions = Mapping[str, tuple[str, ...]]
"""Permission → the permissions that it directly implies (docs/platform/fields.md#permissions)."""

MANAGE = "manage"
"""Implies every permission of its kind."""

ALLOWS = {
    "addKey": "add keys to it",
    "approve": "approve plans that wait",
    "browse": "list what the account has at its provider",
    "connect": "run programs in its containers",
    "create": "create resources of this kind",
    "delete": "delete it",
    "edit": "change it",
    "exec": "request each of its commands",
    "exec.createVolumeSnapshot": "take snapshots of its volumes",
    "exec.deleteVolume": "delete its volumes",
    "exec.deleteVolumeSnapshot": "delete snapshots of its volumes",
    "exec.expandVolume": "enlarge its volumes",
    "exec.restoreVolume": "restore its volumes from snapshots",
    "exec.runCronWorkload": "run it now",
    "exec.stopReplica": "stop one of its replicas",
    "impersonate": "act in its name",
    "invite": "let a person log in",
    MANAGE: "do everything with it",
    "pull": "pull it from the registry",
    "readAudit": "read its records",
    "readLogs": "read the logs of workloads",
    "readMetrics": "read metrics",
    "readUsage": "read what the org uses",
    "reveal": "see its data",
    "use": "refer to it in other resources",
    "view": "see it",
    "viewAccessReport": "see who has which permission",
    "writeAudit": "add records to it",
}
"""Permission → what it allows with a resource of its kind."""

LAST = 10
"""The rank of kinds that are applied last."""


class Kind(StrEnum):
    """Every kind of the platform (docs/platform/fields.md#kinds)."""

    ORG = "org"
    AGENT = "agent"
    AUDITCTX = "auditctx"
    CLOUDACCOUNT = "cloudaccount"
    DOMAIN = "domain"
    GROUP = "group"
    GVC = "gvc"
    IDENTITY = "identity"
    IMAGE = "image"
    IPSET = "ipset"
    LOCATION = "location"
    MK8S = "mk8s"
    POLICY = "policy"
    QUOTA = "quota"
    SECRET = "secret"
    SERVICEACCOUNT = "serviceaccount"
    USER = "user"
    VOLUMESET = "volumeset"
    WORKLOAD = "workload"


class DataPrivacy(StrEnum):
    """Which lines of a manifest with a field ``data`` may be shown."""

    NONE = ""
    """It has none."""
    PUBLIC = "public"
    SECRET = "secret"


class KindTraits(msgspec.Struct, frozen=True):
    """The properties of a kind.

    ``view`` is the class of its typed view, in the module of this package with the name of the kind; "" if only the
    envelope is read. A kind is ``in_gvc`` or belongs to the org. A ``placed`` resource exists once per location of its
    GVC. ``rank`` orders steps without dependencies (docs/platform/cli.md#apply). Links to a kind that is not ``listed``
    are not checked, since it is unknown which of its resources exist.
    """

    permissions: Permissions
    view: str = ""
    in_gvc: bool = False
    placed: bool = False
    rank: int = LAST
    listed: bool = True
    data: DataPrivacy = DataPrivacy.NONE


def _make_permissions(*plain: str, **implying: str) -> Permissions:
    """Permissions that imply nothing, and those that do; spaces separate the implied ones."""
    table = dict.fromkeys(plain, ()) | {name: tuple(words.split()) for name, words in implying.items()}
    return table | {MANAGE: tuple(sorted({*table, MANAGE}))}


_PLAIN = _make_permissions("create", "delete", "view", edit="view")
_USED = _make_permissions("create", "delete", "view", edit="view", use="view")
_RUNS, _STOPS = "exec.runCronWorkload", "exec.stopReplica"
_VOLUMES = (
    "exec.createVolumeSnapshot",
    "exec.deleteVolume",
    "exec.deleteVolumeSnapshot",
    "exec.expandVolume",
    "exec.restoreVolume",
)

TABLE: Mapping[Kind, KindTraits] = {
    Kind.ORG: KindTraits(
        _make_permissions(
            "approve", "exec", "readMetrics", "readUsage", "view", "viewAccessReport", edit="view", readLogs="view"
        ),
        view="Org",
        listed=False,
    ),
    Kind.GVC: KindTraits(_PLAIN, view="Gvc", rank=5),
    Kind.WORKLOAD: KindTraits(
        _make_permissions(
            "connect", "create", "delete", "view", _RUNS, _STOPS, edit="view", exec=f"{_RUNS} {_STOPS}", readLogs="view"
        ),
        view="Workload",
        in_gvc=True,
        placed=True,
        rank=9,
    ),
    Kind.VOLUMESET: KindTraits(
        _make_permissions("create", "delete", "view", *_VOLUMES, edit="view", exec=" ".join(_VOLUMES)),
        view="VolumeSet",
        in_gvc=True,
        placed=True,
        rank=7,
    ),
    Kind.IDENTITY: KindTraits(_USED, view="Identity", in_gvc=True, rank=6),
    Kind.POLICY: KindTraits(_PLAIN, view="Policy", rank=8),
    Kind.SECRET: KindTraits(
        _make_permissions("create", "delete", "view", edit="view reveal", reveal="view", use="view"),
        view="Secret",
        rank=2,
        data=DataPrivacy.SECRET,
    ),
    Kind.LOCATION: KindTraits(_USED, view="Location", rank=4),
    Kind.CLOUDACCOUNT: KindTraits(
        _make_permissions("create", "delete", "view", browse="view", edit="view browse"),
        view="CloudAccount",
        rank=3,
        data=DataPrivacy.PUBLIC,
    ),
    Kind.AGENT: KindTraits(_USED, rank=1),
    Kind.AUDITCTX: KindTraits(_make_permissions("create", "view", edit="view", readAudit="view", writeAudit="view")),
    Kind.GROUP: KindTraits(_PLAIN, view="Group"),
    Kind.SERVICEACCOUNT: KindTraits(_make_permissions("addKey", "create", "delete", "view", edit="view")),
    Kind.USER: KindTraits(_make_permissions("delete", "impersonate", "invite", "view", edit="view"), listed=False),
    Kind.DOMAIN: KindTraits(_make_permissions("create", "delete", "view", edit="view use", use="view"), view="Domain"),
    Kind.IMAGE: KindTraits(
        _make_permissions("delete", "view", create="pull", edit="view", pull="view"),
        listed=False,
    ),
    Kind.QUOTA: KindTraits(_make_permissions("create", "view", edit="view")),
    Kind.IPSET: KindTraits(_PLAIN),
    Kind.MK8S: KindTraits(_PLAIN),
}
"""The properties of every kind, in the order of the reference."""


UNMODELLED_PERMISSIONS: Mapping[Kind, frozenset[str]] = {
    Kind.VOLUMESET: frozenset({"exec.shrinkVolume"}),
}
"""Permissions of the platform that allow nothing here, since there is no such command."""


@cache
def view_of(kind: Kind) -> type[Envelope]:
    """The typed view of ``kind``, imported on first use."""
    if not TABLE[kind].view:
        return Envelope
    view: type[Envelope] = getattr(import_module(f"reconciler.model.kinds.{kind}"), TABLE[kind].view)
    return view


@lru_cache(maxsize=1024)  # thousands of policies name the same permissions
def expand_permissions(kind: Kind, permissions: tuple[str, ...]) -> frozenset[str]:
    """``permissions`` on ``kind`` with all that they imply, directly or indirectly; unknown ones imply nothing."""
    implied = TABLE[kind].permissions
    names: set[str] = set()
    fresh = list(permissions)
    while fresh:
        name = fresh.pop()
        if name not in names:
            names.add(name)
            fresh.extend(implied.get(name, ()))
    return frozenset(names)
