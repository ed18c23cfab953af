"""The table of kinds that the command has of its own, against the models: they do not drift apart."""

from __future__ import annotations

import json

import pytest

from reconciler.model.kinds.table import LAST, TABLE, Kind
from reconciler.platform_cli.command_line import all_rows
from reconciler.platform_cli.commands.manifests import ORDER
from reconciler.platform_cli.output import SERVER_OWNED
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.platform_cli.table.row import Row
from tests.support.processes import ROOT

ROWS = all_rows()
NEEDED = {"edit": "edit", "patch": "edit", "tag": "edit", "update": "edit", "clone": "create"}
"""Common subcommand → the permission of its kind without which it never succeeds."""


def test_every_kind_has_its_commands_or_a_reason_for_none() -> None:
    assert {*TABLE} - KINDS.keys() == {Kind.MK8S}
    assert KINDS.keys() <= {*TABLE}
    clusters = [row for row in ROWS if row.words[0] == Kind.MK8S]
    assert clusters
    assert all(row.instead for row in clusters)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_is_where_the_models_have_it(kind: str) -> None:
    traits, view = TABLE[Kind(kind)], KINDS[kind]
    assert view.in_gvc == traits.in_gvc
    properties = json.loads((ROOT / "schemas" / f"{kind}.json").read_text())["properties"].keys()
    assert {path.partition(".")[0] for path in view.columns.values()} <= properties | SERVER_OWNED
    available = {row.words[1] for row in ROWS if row.words[0] == kind and not row.instead}
    missing = {word for word in available & NEEDED.keys() if NEEDED[word] not in traits.permissions}
    assert missing == set(), "no caller has the permission that these need"


def test_apply_has_the_order_of_the_planner() -> None:
    by_rank = sorted((traits.rank, kind) for kind, traits in TABLE.items() if traits.rank < LAST)
    assert [str(kind) for _, kind in by_rank] == [*ORDER]


def test_no_alias_is_the_name_of_another_command() -> None:
    aliases = [alias for view in KINDS.values() for alias in view.aliases]
    assert len({*aliases}) == len(aliases)
    assert not {*aliases} & {*map(_first, ROWS)}


def _first(row: Row) -> str:
    return row.words[0]
