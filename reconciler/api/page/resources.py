"""Resources: the levels of the tree, searches, and all that is known about one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from shlex import quote
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.history import ShownHistory, read_shown_history
from reconciler.api.page.rendering import render_page
from reconciler.api.page.sharing import share_view
from reconciler.api.page.usage import draw_usage
from reconciler.api.problems import Problem
from reconciler.api.reading import body_of
from reconciler.api.routes.container_exec import PERMISSION as CONNECT
from reconciler.api.routes.overviews import run_in_thread
from reconciler.api.table import ANY, make_page_operation
from reconciler.engines.command_types import COMMANDS, DESTROYS, permission_for
from reconciler.engines.reading import ReplicaRow
from reconciler.engines.volume_commands import CLONE, VOLUME_COMMANDS
from reconciler.engines.workload_commands import RUN, STOP
from reconciler.errors import EngineError, UsageError
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.lists.selection import parse_selector
from reconciler.model.record import Health
from reconciler.queries.browsing import BATCH, KindCount, ResourceFilter, browse_resources, count_kinds
from reconciler.queries.existence import did_you_mean
from reconciler.queries.resources import ListedResource, describe_resource
from reconciler.queries.sources import describe_source
from reconciler.records.tables.conditions import Condition
from reconciler.render.usage import SERIES
from reconciler.status.conditions import compute_conditions

REVEAL = "reveal"
"""The permission to see the values of a secret."""
_ON_PARTS = (frozenset(VOLUME_COMMANDS) | {STOP}) - {CLONE}
"""Commands that each volume, or each replica, has a form of its own for."""
_ROWS, _MOST_ROWS = 100, 500
_UNWELL = "unwell"
"""The state of what is neither healthy nor only recorded."""
STATES: Mapping[str, frozenset[Health]] = {
    _UNWELL: frozenset(health for health in Health if not health.is_good),
    **{health.value.lower(): frozenset({health}) for health in Health},
}
"""State in a search → the healths that it stands for."""
_FILTERS = ("kind", "gvc", "state", "tag", "text", "after", "limit")


class ResourceRow(NamedTuple):
    """A line of a list; ``applied`` is when it was applied, in seconds since the epoch."""

    key: Key
    health: Health
    ready: Condition
    version: int
    applied: float


class ResourceLevel(NamedTuple):
    """A level of the tree: its rows, the key after which more follow ("": none), and the kinds of all of it."""

    rows: list[ResourceRow]
    following: str
    counts: list[KindCount]


class CommandForm(NamedTuple):
    """A command that the caller may request: the fields of its spec, and what it destroys."""

    name: str
    fields: list[FormField]
    destroys: str


class FormField(NamedTuple):
    """An input: its name in the request, and what people read."""

    name: str
    label: str
    is_number: bool
    is_required: bool


async def show_resources(call: Call) -> Response:
    """A level of the tree: all kinds and GVCs, what is in one, or what matches a search."""
    chosen = _parse_filter(call)
    limit, after = call.count("limit", _ROWS, _MOST_ROWS), call.query("after")

    def read() -> ResourceLevel:
        records = call.reader.records
        sees = partial(_may_view_row, call)
        visible = partial(_list_visible, call)
        page = browse_resources(call.api.settings, records, chosen, sees, visible, (after, limit))
        counts = count_kinds(records) if call.may("view", Key(Kind.ORG, "", call.org)) else []
        return ResourceLevel(list(map(_make_row, page.rows)), page.following, counts)

    level = await call.apart(read)
    query = {name: call.query(name) for name in _FILTERS}
    named = {name: value for name, value in query.items() if value}
    next_page = f"/ui/resources?{urlencode({**named, 'after': level.following})}" if level.following else ""
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
    )


def _make_command(query: Mapping[str, str]) -> str:
    """The command with the same answer."""
    words = ["reconciler get", query.get("kind", "")]
    words += [f"--gvc {quote(query['gvc'])}"] if "gvc" in query else []
    words += [f"-l {quote(query['tag'])}"] if "tag" in query else []
    words += [f"| grep {quote(query['text'])}"] if "text" in query else []
    return " ".join(filter(None, words))


def _parse_filter(call: Call) -> ResourceFilter:
    """What the query asks for. Raises Problem 400 and 404."""
    kind, state, tag = call.query("kind"), call.query("state"), call.query("tag")
    if kind and kind not in KINDS:
        raise Problem(404, f"there is no kind {kind[:60]!r}{did_you_mean(kind[:60], KINDS)}")
    if state and state not in STATES:
        raise Problem(400, f"there is no state {state[:60]!r}{did_you_mean(state[:60], STATES)}")
    try:
        accepts = parse_selector(tag) if tag else None
    except UsageError as error:
        raise Problem(400, str(error)) from None
    return ResourceFilter(
        KINDS[kind] if kind else None,
        call.query("gvc"),
        STATES.get(state, frozenset()),
        call.query("text"),
        accepts,
    )


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


def _make_row(row: ListedResource) -> ResourceRow:
    facts = row.facts
    newest = max(facts.records, key=lambda record: record.applied_at)
    return ResourceRow(facts.key, facts.health, compute_conditions(facts)[0], newest.version, newest.applied_at)


async def show_resource(call: Call) -> Response:
    """All that is known about a resource, and what the caller may do with it."""
    from reconciler.documents.writer import render_document
    from reconciler.render.plan.summary import one_line
    from reconciler.render.resources import details_document
    from reconciler.render.versions import name_fields

    key = call.visible_key()
    details = await call.apart(
        lambda: describe_resource(call.api.settings, call.reader.records, key, call.api.clock.now())
    )
    document = details_document(*details)
    shown, drift = await run_in_thread(call, lambda: _read_desired(call, key))
    replicas, fault = await read_replicas(call, key)
    usage = await draw_usage(call, key)
    body = {name: document[name] for name in msgspec.json.decode(details.facts.records[0].body) if name in document}
    return render_page(
        call,
        "resource.html",
        key=key,
        document=document,
        ready=compute_conditions(details.facts)[0],
        facts=details.facts,
        details=details,
        shown=shown,
        drift=drift,
        name_fields=name_fields,
        one_line=one_line,
        on_parts=_ON_PARTS,
        manifest=render_document(body),
        replicas=replicas,
        fault=fault,
        usage=usage,
        columns=[series.title for series in SERIES],
        commands=_list_command_forms(call, key),
        runs_now=RUN,
        **_read_permissions(call, key),
    )


def _read_permissions(call: Call, key: Key) -> dict[str, bool]:
    """What the page of ``key`` offers to the caller."""
    is_workload = key.kind is Kind.WORKLOAD
    return {
        "sees_org": call.may("view", Key(Kind.ORG, "", call.org)),
        "may_edit": call.may("edit", key),
        "may_reveal": key.kind is Kind.SECRET and call.may(REVEAL, key),
        "may_connect": is_workload and call.may(CONNECT, key),
        "may_stop": is_workload and call.may(permission_for(STOP), key),
        "may_read_logs": is_workload and call.may("readLogs", key),
    }


def _read_desired(call: Call, key: Key) -> tuple[ShownHistory, dict[str, Any]]:
    """The versions of ``key`` in Git, and how it differs at its locations, as JSON values."""
    from reconciler.render.drift import drift_document

    drifts = call.reader.records.drifts
    return read_shown_history(call, key), drift_document(drifts.last_checked_at(), drifts.of_key(key))


async def read_replicas(call: Call, key: Key) -> tuple[list[ReplicaRow], str]:
    """The replicas of a workload on this host, and why they are unknown, "" if they are not."""
    if key.kind is not Kind.WORKLOAD:
        return [], ""
    import asyncio

    try:
        rows = await asyncio.to_thread(call.api.replicas.read)
    except EngineError as error:
        return [], str(error)
    return [row for row in rows if row.key == key], ""


def _list_command_forms(call: Call, key: Key) -> list[CommandForm]:
    """The commands on ``key`` that the caller may request."""
    return [
        CommandForm(name, list(_list_fields(form)), DESTROYS.get(name, ""))
        for name, form in COMMANDS.get(key.kind, {}).items()
        if call.may(permission_for(name), key)
    ]


def _list_fields(form: type[msgspec.Struct]) -> list[FormField]:
    """An input for each field of a spec that is a text or a number; the others have their defaults."""
    return [
        FormField(
            f"spec.{field.encode_name}{'' if field.type is str else ':number'}",
            field.encode_name,
            field.type is not str,
            field.required,
        )
        for field in msgspec.structs.fields(form)
        if field.type in (str, int, float)
    ]


async def show_source(call: Call) -> Response:
    """All that is known about a source, and what the caller may do with it."""
    from reconciler.render.sources import source_details_document

    org = Key(Kind.ORG, "", call.org)
    call.require("view", org)
    name, api = call.request.path_params["name"], call.api
    details = await call.apart(
        lambda: describe_source(api.settings, call.reader.records, name, daemon_runs=api.is_alive())
    )
    document: dict[str, Any] = source_details_document(details)
    return render_page(call, "source.html", name=name, source=document, details=details, may_edit=call.may("edit", org))


_OF_GVC = sorted(GVC_SCOPED)

PAGES = (
    share_view(
        make_page_operation(
            "/ui/resources", show_resources, "Resources, a level at a time, and searches.", ANY, _FILTERS
        )
    ),
    share_view(make_page_operation("/ui/resource/source/{name}", show_source, "One source.", "view")),
    share_view(make_page_operation("/ui/resource/{kind}/{name}", show_resource, "One resource.", "view")),
    share_view(
        make_page_operation("/ui/resource/{kind}/{gvc}/{name}", show_resource, "One resource of a GVC.", "view")
    ),
)
