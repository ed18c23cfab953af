"""One resource, or source: all that is known about it, and what the caller may do with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.history import ShownHistory, read_shown_history
from reconciler.api.page.rendering import render_page
from reconciler.api.page.sharing import share_view
from reconciler.api.page.usage import draw_usage
from reconciler.api.routes.container_exec import PERMISSION as CONNECT
from reconciler.api.routes.overviews import run_in_thread
from reconciler.api.table import make_page_operation
from reconciler.engines.command_types import COMMANDS, DESTROYS, permission_for
from reconciler.engines.reading import ReplicaRow
from reconciler.engines.volume_commands import CLONE, VOLUME_COMMANDS
from reconciler.engines.workload_commands import RUN, STOP
from reconciler.errors import EngineError, NotFoundError
from reconciler.model.key import GVC_SCOPED, Key, Kind
from reconciler.queries.resources import describe_resource
from reconciler.queries.sources import describe_source
from reconciler.render.usage import SERIES
from reconciler.status.conditions import compute_conditions

REVEAL = "reveal"
"""The permission to see the values of a secret."""
_ON_PARTS = (frozenset(VOLUME_COMMANDS) | {STOP}) - {CLONE}
"""Commands that each volume, or each replica, has a form of its own for."""


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


def find_visible_key(call: Call) -> Key:
    """The key in the path, of a resource that the caller may view: also of one that is in Git and waits, or failed."""
    try:
        return call.visible_key()
    except NotFoundError:
        return call.existing("view")


async def show_resource(call: Call) -> Response:
    """All that is known about a resource, and what the caller may do with it."""
    from reconciler.documents.writer import render_document
    from reconciler.render.plan.summary import one_line
    from reconciler.render.resources import details_document
    from reconciler.render.versions import name_fields

    key = find_visible_key(call)
    details = await call.apart(
        lambda: describe_resource(call.api.settings, call.reader.records, key, call.api.clock.now())
    )
    document = details_document(*details[:5])
    shown, drift = await run_in_thread(call, lambda: _read_desired(call, key))
    replicas, fault = await read_replicas(call, key)
    usage = await draw_usage(call, key)
    declared = msgspec.json.decode(details.facts.records[0].body) if details.facts.records else {}
    body = {name: document[name] for name in declared if name in document}
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
        manifest=render_document(body) if body else "",
        is_cron=(document.get("spec") or {}).get("type") == "cron",
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
    share_view(make_page_operation("/ui/resource/source/{name}", show_source, "One source.", "view")),
    share_view(make_page_operation("/ui/resource/{kind}/{name}", show_resource, "One resource.", "view")),
    share_view(
        make_page_operation("/ui/resource/{kind}/{gvc}/{name}", show_resource, "One resource of a GVC.", "view")
    ),
)
