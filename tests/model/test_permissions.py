"""The permissions that a permission implies, by kind."""

from __future__ import annotations

import pytest

from reconciler.model.key import Kind
from reconciler.model.kinds.table import MANAGE, TABLE, expand_permissions


def test_every_kind_has_permissions_and_implies_only_its_own() -> None:
    assert TABLE.keys() == set(Kind)
    for table in (traits.permissions for traits in TABLE.values()):
        assert {name for implied in table.values() for name in implied} <= table.keys()
        assert set(table[MANAGE]) == table.keys()


@pytest.mark.parametrize(
    ("kind", "granted", "found"),
    [
        (Kind.SECRET, ("edit",), "edit reveal view"),
        (Kind.SECRET, ("use",), "use view"),
        (Kind.IMAGE, ("create",), "create pull view"),
        (Kind.WORKLOAD, ("exec",), "exec exec.runCronWorkload exec.stopReplica"),
        (Kind.DOMAIN, ("edit", "create"), "create edit use view"),
        (Kind.QUOTA, ("manage",), "create edit manage view"),
        (Kind.GROUP, ("unheard-of",), "unheard-of"),
        (Kind.GVC, (), ""),
    ],
)
def test_implied_permissions_are_expanded_fully(kind: Kind, granted: tuple[str, ...], found: str) -> None:
    assert " ".join(sorted(expand_permissions(kind, granted))) == found


def test_documented_permissions_exist() -> None:
    volumes = expand_permissions(Kind.VOLUMESET, ("exec",)) - {"exec"}
    assert len(volumes) == 5
    assert all(name.startswith("exec.") for name in volumes)
    assert "delete" not in TABLE[Kind.AUDITCTX].permissions
    assert {"connect", "exec.runCronWorkload"} <= TABLE[Kind.WORKLOAD].permissions.keys()
    assert expand_permissions(Kind.CLOUDACCOUNT, ("edit",)) == {"edit", "view", "browse"}
