"""The audit log of the API, and the records that programs append to audit contexts."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from reconciler.access.audit_records import AuditRecord, AuditRecordRow
from reconciler.access.store import AuditRow
from reconciler.api.authentication import address_of
from reconciler.api.call import LARGEST, Call, read_as
from reconciler.api.problems import JSON, Problem
from reconciler.api.routes.streams import PartStream
from reconciler.api.table import LINES, Operation
from reconciler.errors import NotFoundError
from reconciler.model.key import Key, Kind
from reconciler.model.platform import AUDIT_CONTEXT
from reconciler.times import format_iso_time

_MOST_ENTRIES = 1000
_BATCH = 200
"""Entries of an export that are read at once."""
_MOST_DETAILS = 16_384
"""Bytes of the longest details of a record, as JSON."""
_Text = Annotated[str, msgspec.Meta(max_length=1000)]


_Read = Callable[[int, int], Sequence[Mapping[str, Any]]]
"""Reads entries after a number, at most as many as the second argument."""


class NewAuditRecord(msgspec.Struct, forbid_unknown_fields=True):
    """What a program did: the server adds who states it, when, and from where."""

    action: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    target: _Text = ""
    outcome: _Text = ""
    details: dict[str, Any] = {}


async def read_audit(call: Call) -> Response:
    """Entries of the audit log after the number ``after``; each has the hash that chains it to the one before."""
    call.require("readAudit", Key.parse(AUDIT_CONTEXT))
    call.api.refusals.flush()
    return _build_response(
        call, "audit", lambda after, limit: [*map(_entry_document, call.api.store.audit(after, limit))]
    )


async def append_record(call: Call) -> Response:
    """Append a record to an audit context."""
    key = _require_audit_context(call, "writeAudit")
    new_audit_record = read_as(await call.body(), NewAuditRecord)
    if len(msgspec.json.encode(new_audit_record.details)) > _MOST_DETAILS:
        raise Problem(400, f"details: more than {_MOST_DETAILS} bytes")
    record = AuditRecord(
        at=call.api.clock.now(),
        principal=call.caller.principal,
        credential=call.caller.credential,
        address=address_of(call.request),
        request_id=call.request_id,
        action=new_audit_record.action,
        target=new_audit_record.target,
        outcome=new_audit_record.outcome,
        details=new_audit_record.details,
    )
    return call.respond(_record_document(call.api.store.audit_records.append(key.name, record)), 201)


async def list_records(call: Call) -> Response:
    """Records of an audit context after the number ``after``; each has the hash that chains it to the one before."""
    read = partial(call.api.store.audit_records.list, _require_audit_context(call, "readAudit").name)
    return _build_response(call, "record", lambda after, limit: [*map(_record_document, read(after, limit))])


def _build_response(call: Call, kind: str, read: _Read) -> Response:
    """A page of what ``read`` returns; as lines, all that follows, for the export to another system."""
    after = call.count("after", 0, LARGEST)
    if call.choose_media_type(JSON, LINES) == JSON:
        limit = call.count("limit", _MOST_ENTRIES, _MOST_ENTRIES)
        return call.respond({"kind": "list", "itemKind": kind, "items": read(after, limit)})
    resources = contextlib.AsyncExitStack()
    resources.enter_context(call.api.streams.admit(call.caller.principal))
    return PartStream(call, _stream_lines(read, after), resources, None)


async def _stream_lines(read: _Read, after: int) -> AsyncIterator[bytes]:
    while items := read(after, _BATCH):
        yield b"".join(msgspec.json.encode(item) + b"\n" for item in items)
        after = items[-1]["number"]


def _require_audit_context(call: Call, permission: str) -> Key:
    key = Key(Kind.AUDITCTX, "", call.request.path_params["name"])
    call.require(permission, key)
    if str(key) == AUDIT_CONTEXT:
        raise Problem(400, f"{key} has the audit log of this server, which it alone writes: GET /org/{call.org}/-audit")
    if not call.reader.records.applied.exists(key):
        raise NotFoundError(f"there is no {key}")
    return key


def _entry_document(row: AuditRow) -> dict[str, object]:
    return {
        "number": row.number,
        **msgspec.to_builtins(row.entry),
        "at": format_iso_time(row.entry.at),
        "hash": row.hash,
    }


def _record_document(row: AuditRecordRow) -> dict[str, object]:
    return {
        "number": row.number,
        **msgspec.to_builtins(row.record),
        "at": format_iso_time(row.record.at),
        "hash": row.hash,
    }


_BOUNDS = {"limit": (1, _MOST_ENTRIES)}
_RECORDS = "/org/{org}/auditctx/{name}/-record"

OPERATIONS = (
    Operation(
        "GET",
        "/org/{org}/-audit",
        read_audit,
        "Read the audit log.",
        "readAudit",
        parameters=("after", "limit"),
        bounds=_BOUNDS,
        forms=(LINES,),
    ),
    # A record has all that an entry of the audit log would have, so it makes none.
    Operation(
        "POST",
        _RECORDS,
        append_record,
        "Append a record to an audit context.",
        "writeAudit",
        {201: "The record."},
        body=NewAuditRecord,
    ),
    Operation(
        "GET",
        _RECORDS,
        list_records,
        "Read the records of an audit context.",
        "readAudit",
        parameters=("after", "limit"),
        bounds=_BOUNDS,
        forms=(LINES,),
    ),
)
