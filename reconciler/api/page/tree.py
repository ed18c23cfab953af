"""The tree: kinds, GVCs, what is in one, its deployments and their replicas, a level at a time; and searches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from shlex import quote
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.rendering import render_page
from reconciler.api.page.resources import read_replicas
from reconciler.api.page.sharing import share_view
from reconciler.api.problems import Problem
from reconciler.api.reading import body_of
from reconciler.api.table import ANY, make_page_operation
from reconciler.engines.reading import ReplicaRow
from reconciler.errors import UsageError
from reconciler.model.key import KINDS, Key, Kind
from reconciler.model.lists.selection import parse_selector
from reconciler.model.record import Health, Record
from reconciler.queries.browsing import (
    BATCH,
    STATES,
    KindCount,
    ResourceFilter,
    browse_resources,
    count_kinds,
    parse_state,
)
from reconciler.queries.existence import did_you_mean
from reconciler.queries.resources import ListedResource, list_keys
from reconciler.records.tables.conditions import Condition
from reconciler.status.conditions import compute_conditions

_PATH = "/ui/resources"
_ROWS, _MOST_ROWS = 100, 500
_FILTERS = ("kind", "gvc", "state", "tag", "text", "after", "limit")
_OPTIONS = {"gvc": "--gvc", "state": "--state", "tag": "-l", "text": "--text", "limit": "--limit"}
"""Filter of a search → the option of the command that does the same."""
_OPEN = "open"
"""The parameter with the resource that is unfolded, as ``KEY``, or as ``KEY@LOCATION`` for the replicas there."""


class DeploymentRow(NamedTuple):
    """What is deployed at a location. ``message`` is of its status; times are in seconds since the epoch."""

    location: str
    health: Health
    version: int
    message: str
    applied: float


class ResourceRow(NamedTuple):
    """A line of a list; ``applied`` is when it was applied, in seconds since the epoch.

    ``deployments`` are those of the one that is unfolded; ``unfolds`` is whether a resource has any.
    """

    key: Key
    health: Health
    ready: Condition
    version: int
    applied: float
    unfolds: bool
    deployments: list[DeploymentRow]


class ResourceLevel(NamedTuple):
    """A level of the tree: its rows, the key after which more follow ("": none), and the kinds of all of it."""

    rows: list[ResourceRow]
    following: str
    counts: list[KindCount]


class Unfolding(NamedTuple):
    """What is unfolded: a resource (None: nothing), and one of its locations ("": none)."""

    key: Key | None
    location: str


async def show_resources(call: Call) -> Response:
    """A level of the tree: all kinds and GVCs, what is in one, or what matches a search; with one resource unfolded."""
    chosen, unfolding = _parse_filter(call), _parse_unfolding(call.query(_OPEN))
    level = await call.apart(partial(_read_level, call, chosen, unfolding))
    replicas, fault = await _read_replicas_below(call, level, unfolding)
    query = {name: call.query(name) for name in _FILTERS}
    named = {name: value for name, value in query.items() if value}

    def make_address(opened: str) -> str:
        """The address of this level with ``opened`` unfolded ("": nothing)."""
        words = named | ({_OPEN: opened} if opened else {})
        return f"{_PATH}?{urlencode(words)}" if words else _PATH

    next_page = f"{_PATH}?{urlencode({**named, 'after': level.following})}" if level.following else ""
    return render_page(
        call,
        "resources.html",
        chosen=query,
        is_filtered=bool(named),
        rows=level.rows,
        next_page=next_page,
        counts=level.counts,
        kinds=sorted(KINDS),
        states=[*STATES],
        command=_make_command(named),
        make_address=make_address,
        opened=unfolding,
        replicas=replicas,
        fault=fault,
    )


def _make_command(query: Mapping[str, str]) -> str:
    """The command with the same answer."""
    words = ["reconciler get", query.get("kind", "")]
    words += [f"{option} {quote(query[name])}" for name, option in _OPTIONS.items() if name in query]
    return " ".join(filter(None, words))


def _parse_filter(call: Call) -> ResourceFilter:
    """What the query asks for. Raises Problem 400 and 404."""
    kind, state, tag = call.query("kind"), call.query("state"), call.query("tag")
    if kind and kind not in KINDS:
        raise Problem(404, f"there is no kind {kind[:60]!r}{did_you_mean(kind[:60], KINDS)}")
    try:
        healths, accepts = parse_state(state), parse_selector(tag) if tag else None
    except UsageError as error:
        raise Problem(400, str(error)) from None
    return ResourceFilter(
        KINDS[kind] if kind else None,
        call.query("gvc"),
        healths,
        call.query("text"),
        accepts,
    )


def _parse_unfolding(text: str) -> Unfolding:
    """What ``text`` asks to unfold. Raises Problem 400."""
    words, _, location = text.partition("@")
    try:
        return Unfolding(Key.parse(words) if words else None, location)
    except ValueError as error:
        raise Problem(400, str(error)) from None


def _read_level(call: Call, chosen: ResourceFilter, unfolding: Unfolding) -> ResourceLevel:
    settings, records, opened = call.api.settings, call.reader.records, unfolding.key
    page = (call.query("after"), call.count("limit", _ROWS, _MOST_ROWS))
    sees, visible = partial(_may_view_row, call), partial(_list_visible, call)
    listed = browse_resources(settings, records, chosen, sees, visible, page)
    rows = listed.rows
    if opened is not None and all(row.facts.key != opened for row in rows):
        # It is on another page of the list: a shared address shows it all the same.
        rows = [*filter(sees, list_keys(settings, records, [str(opened)])), *rows]
    sees_org = call.may("view", Key(Kind.ORG, "", call.org))
    counts = count_kinds(records, chosen.gvc) if sees_org and chosen.kind is None else []
    return ResourceLevel([_make_row(row, opened) for row in rows], listed.following, counts)


def _may_view_row(call: Call, row: ListedResource) -> bool:
    return call.may("view", row.facts.key, lambda: body_of(row.facts.records[0]))


def _list_visible(call: Call, kind: Kind, prefix: str, after: str) -> Sequence[str] | None:
    """See ``ListVisible``: to read each of many resources for a caller who sees few would cost as much as all."""
    visible, reader = call.visibility(kind), call.reader
    if visible.everything:
        return None
    pages = (reader.selections.keys_after(reader.records, grant, prefix, after, BATCH) for grant in visible.grants)
    named = (key for key in visible.keys if key.startswith(prefix) and key > after)
    return sorted({*named, *chain.from_iterable(pages)})[:BATCH]


def _make_row(row: ListedResource, opened: Key | None) -> ResourceRow:
    facts = row.facts
    newest = max(facts.records, key=lambda record: record.applied_at)
    placed = [record for record in facts.records if record.location]
    deployments = [_make_deployment_row(record) for record in placed] if facts.key == opened else []
    ready = compute_conditions(facts)[0]
    return ResourceRow(facts.key, facts.health, ready, newest.version, newest.applied_at, bool(placed), deployments)


def _make_deployment_row(record: Record) -> DeploymentRow:
    status = msgspec.json.decode(record.state).get("status")
    message = status.get("message") if isinstance(status, dict) else ""
    return DeploymentRow(record.location, record.health, record.version, message or "", record.applied_at)


async def _read_replicas_below(call: Call, level: ResourceLevel, unfolding: Unfolding) -> tuple[list[ReplicaRow], str]:
    """The replicas of the deployment that is unfolded, and why they are unknown, "" if they are not."""
    shown = any(row.location == unfolding.location for each in level.rows for row in each.deployments)
    if unfolding.key is None or not shown:
        return [], ""
    replicas, fault = await read_replicas(call, unfolding.key)
    return [row for row in replicas if row.location == unfolding.location], fault


PAGES = (
    share_view(
        make_page_operation(
            _PATH, show_resources, "Resources, a level at a time, and searches.", ANY, (*_FILTERS, _OPEN)
        )
    ),
)
