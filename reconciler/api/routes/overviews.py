"""Overviews for operators: what commands such as `reconciler get` show, as JSON and as the text that they print.

They contain all resources, so that the caller needs the permission to view everything. Each operation imports what it
shows with: megabytes that a server at rest does without.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import JSON, Problem
from reconciler.api.routes.streams import Stream
from reconciler.api.table import LINES, MARKDOWN, OVERVIEW, TEXT, YAML, Operation
from reconciler.errors import SourceError, SourceNotFound
from reconciler.model.finding import Severity
from reconciler.model.key import KINDS, Key, Kind
from reconciler.operations.approval import MIN_PREFIX
from reconciler.queries.existence import check_gvc, did_you_mean, find_source, source_of

if TYPE_CHECKING:
    from reconciler.queries.history import EventReader
    from reconciler.records.tables.events import Event
    from reconciler.render.plan.review import PlanReview
    from reconciler.settings import SourceSettings

CHANGES, ERRORS = "Plan-Changes", "Plan-Errors"
"""Headers of a plan: the number of its steps, and of the errors in the revision."""
_MOST_EVENTS, _MOST_RUNS = 100_000, 10_000
_POLL_SECONDS = 0.5
_MEASURE_SECONDS = 0.5
"""Seconds in which the processor time of replicas is measured."""


async def read_status(call: Call) -> Response:
    """The recorded resources, with the status of each and of the sources."""
    from reconciler.queries.resources import find_resources, list_sources
    from reconciler.render.resources import resource_table, resources_json, resources_yaml

    _require_everything(call)
    kind, gvc, name = call.query("kind"), call.query("gvc") or None, call.query("name") or None
    if kind and kind not in KINDS:
        raise Problem(404, f"there is no kind {kind[:60]!r}{did_you_mean(kind, KINDS)}")
    media, settings = call.accepted(JSON, TEXT, YAML), call.api.settings

    def read() -> Response:
        found = find_resources(settings, call.reader.records, KINDS[kind] if kind else None, gvc, name)
        if media == TEXT:
            return _text_response(resource_table(found, colour=False))
        sources = list_sources(settings, call.reader.records)
        parts = resources_json(found, sources) if media == JSON else resources_yaml(found, sources)
        return Response("".join(parts), media_type=media)

    return await call.apart(read)


async def describe(call: Call) -> Response:
    """All that is known about a resource or a source, as text."""
    from reconciler.queries.resources import describe_resource
    from reconciler.queries.sources import describe_source
    from reconciler.render.layout import section_text
    from reconciler.render.resources import resource_sections
    from reconciler.render.sources import source_sections

    _require_everything(call)
    target, settings = _target(call), call.api.settings
    if target is None:
        raise Problem(400, "key is the resource or source to describe")

    def read() -> Response:
        records = call.reader.records
        if isinstance(target, str):
            details = describe_source(settings, records, source_of(target), daemon_runs=call.api.is_alive())
            return Response(section_text(source_sections(details, False), colour=False), media_type=TEXT)
        found = describe_resource(settings, records, target)
        return Response(section_text(resource_sections(*found, False), colour=False), media_type=TEXT)

    return await call.apart(read)


async def read_events(call: Call) -> Response:
    """The last events, oldest first, and then new ones as they come if the client follows them."""
    from reconciler.queries.history import EventReader

    _require_everything(call)
    reader = EventReader(call.api.settings, call.reader.records, _target(call))
    found = reader.newest(call.count("last", 100, _MOST_EVENTS)) if call.query("last") != "0" else []
    media = call.accepted(LINES, TEXT)
    if call.query("follow") != "true":
        return Response(_event_lines(found, media), media_type=media)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(call.api.stream_slot(call.caller.principal))
        return Stream(call, _follow(reader, found, media), stack.pop_all(), _require_everything, media)


async def _follow(reader: EventReader, found: Sequence[Event], media: str) -> AsyncIterator[bytes]:
    while True:
        if found:
            yield _event_lines(found, media)
        while not (found := reader.more()):
            await asyncio.sleep(_POLL_SECONDS)


def _event_lines(events: Sequence[Event], media: str) -> bytes:
    from reconciler.render.history import event_document, event_line

    if media == TEXT:
        return "".join(f"{event_line(each, colour=False)}\n" for each in events).encode()
    return b"".join(msgspec.json.encode(event_document(each)) + b"\n" for each in events)


async def read_all_runs(call: Call) -> Response:
    """The last runs of all sources, or of one, that changed something or failed, newest first."""
    from reconciler.queries.history import list_runs
    from reconciler.render.history import run_document, run_line

    _require_everything(call)
    runs = list_runs(call.api.settings, call.reader.records, call.query("source"), call.count("last", 30, _MOST_RUNS))
    if call.accepted(JSON, TEXT) == TEXT:
        return _text_response("\n".join(run_line(run, colour=False) for run in runs))
    return call.respond({"kind": "list", "itemKind": "run", "items": [run_document(run) for run in runs]})


async def read_top(call: Call) -> Response:
    """The replicas on this host, with the processor time that they use during a moment, and their memory."""
    from reconciler.queries.top import ReplicaReader
    from reconciler.render.replicas import replica_document, replica_table

    _require_everything(call)
    gvc = call.query("gvc") or None
    reader = ReplicaReader(call.api.settings, gvc)
    rows = await asyncio.to_thread(reader.read)
    if rows:
        await asyncio.sleep(_MEASURE_SECONDS)
        rows = await asyncio.to_thread(reader.read)
    elif gvc is not None:
        check_gvc(call.reader.records, gvc)
    if call.accepted(JSON, TEXT) == TEXT:
        return _text_response("\n".join(replica_table(rows, colour=False)) if rows else "")
    return call.respond({"kind": "list", "itemKind": "replica", "items": replica_document(rows)["replicas"]})


async def read_snapshots(call: Call) -> Response:
    """The snapshots of a volume set or of all, or the final snapshots of deleted volumes on this host."""
    from reconciler.queries.snapshots import list_final_snapshots, list_snapshots
    from reconciler.render.snapshots import snapshot_document, snapshot_table

    _require_everything(call)
    target = _target(call)
    if isinstance(target, str):
        raise Problem(400, "a source has no snapshots")

    def read() -> Response:
        final = call.query("deleted") == "true"
        records, settings = call.reader.records, call.api.settings
        found = list_final_snapshots(settings, target) if final else list_snapshots(records, target)
        if call.accepted(JSON, TEXT) == TEXT:
            return _text_response(snapshot_table(found, call.api.clock.now()))
        items = [snapshot_document(each) for each in found]
        return call.respond({"kind": "list", "itemKind": "snapshot", "items": items})

    return await call.apart(read)


async def read_plan(call: Call) -> Response:
    """What a run of a source would do to apply a revision; its headers count the steps and errors."""
    _require_everything(call)
    source = find_source(call.api.settings, call.request.path_params["name"])
    blame = {"true": True, "false": False}.get(call.query("blame"))
    return await call.apart(lambda: _plan(call, source, call.query("revision"), blame))


async def read_plan_of_digest(call: Call) -> Response:
    """The current plan with a digest, of the plan or of its steps that wait: what an approver is asked about."""
    _require_everything(call)
    digest = call.request.path_params["digest"]
    if len(digest) < MIN_PREFIX:
        raise Problem(400, f"write the first {MIN_PREFIX} characters of a digest, or more")
    return await call.apart(lambda: _plan_of_digest(call, digest))


def _plan_of_digest(call: Call, digest: str) -> Response:
    from reconciler.review.plan import plan_source

    for source in call.api.settings.sources:
        with contextlib.suppress(SourceError):
            review = plan_source(call.api.settings, source, call.reader.records, "", blame=None, first=False)
            plan = review.plan
            if plan is not None and any(each.startswith(digest) for each in (plan.digest, plan.hold_digest)):
                return _plan_response(call, review)
    raise Problem(404, f"no current plan has the digest {digest[:64]}")


def _plan(call: Call, source: SourceSettings, revision: str, blame: bool | None) -> Response:
    from reconciler.review.plan import plan_source

    try:
        review = plan_source(call.api.settings, source, call.reader.records, revision, blame=blame, first=False)
    except SourceNotFound as error:
        raise Problem(404, str(error)) from None
    return _plan_response(call, review)


def _plan_response(call: Call, review: PlanReview) -> Response:
    from reconciler.render.plan.review import plan_document, plan_markdown, plan_text

    changes = len(review.plan.steps) if review.plan is not None else 0
    headers = {CHANGES: str(changes), ERRORS: str(sum(each.severity is Severity.ERROR for each in review.findings))}
    match call.accepted(JSON, TEXT, MARKDOWN):
        case media if media == TEXT:
            return Response(plan_text(review), headers=headers, media_type=TEXT)
        case media if media == MARKDOWN:
            return Response(plan_markdown(review), headers=headers, media_type=MARKDOWN)
    return call.respond(plan_document(review), headers=headers)


def _require_everything(call: Call) -> None:
    """Refuse the request unless the caller may view every resource of every kind."""
    for kind in Kind:
        if not call.visibility(kind).everything:
            raise Problem(403, f"{call.caller.principal} has no permission `view` on every {kind}")


def _target(call: Call) -> Key | str | None:
    """The query parameter ``key``: a key, ``source/NAME``, or None for all."""
    text = call.query("key")
    try:
        return text if source_of(text) else Key.parse(text) if text else None
    except ValueError as error:
        raise Problem(400, str(error)) from None


def _text_response(text: str) -> Response:
    return Response(f"{text}\n" if text else "", media_type=TEXT)


OPERATIONS = (
    Operation("GET", "/org/{org}/-status", read_status, "Read the resources with the status of each.", OVERVIEW,
              parameters=("kind", "gvc", "name"), forms=(TEXT, YAML)),
    Operation("GET", "/org/{org}/-describe", describe, "Describe a resource or source, as text.", OVERVIEW,
              parameters=("key",), media=TEXT),
    Operation("GET", "/org/{org}/-events", read_events, "Read the events of all resources, or of one.", OVERVIEW,
              parameters=("key", "last", "follow"), media=LINES, forms=(TEXT,)),
    Operation("GET", "/org/{org}/-runs", read_all_runs, "List the runs of all sources, or of one.", OVERVIEW,
              parameters=("source", "last"), forms=(TEXT,)),
    Operation("GET", "/org/{org}/-top", read_top, "List the replicas on this host, with what they use.", OVERVIEW,
              parameters=("gvc",), forms=(TEXT,)),
    Operation("GET", "/org/{org}/-snapshot", read_snapshots, "List the snapshots of volume sets.", OVERVIEW,
              parameters=("key", "deleted"), forms=(TEXT,)),
    Operation("GET", "/org/{org}/source/{name}/-plan", read_plan, "Plan a revision of a source.", OVERVIEW,
              parameters=("revision", "blame"), forms=(TEXT, MARKDOWN)),
    Operation("GET", "/org/{org}/-plan/{digest}", read_plan_of_digest, "Read the current plan with a digest.",
              OVERVIEW, forms=(TEXT, MARKDOWN)),
)  # fmt: skip
