"""The audit log of the API, and the records that programs append to audit contexts."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from reconciler.access.audit_records import AuditRecord, AuditRecordRow
from reconciler.access.store import AuditRow
from reconciler.api.authentication import address_of
from reconciler.api.call import LARGEST, Call, read_as
from reconciler.api.problems import Problem
from reconciler.api.table import Operation
from reconciler.errors import NotFoundError
from reconciler.model.key import Key, Kind
from reconciler.model.platform import AUDIT_CONTEXT
from reconciler.times import iso

_MOST_ENTRIES = 1000
_MOST_DETAILS = 16_384
"""Bytes of the longest details of a record, as JSON."""
_Text = Annotated[str, msgspec.Meta(max_length=1000)]


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
    rows = call.api.store.audit(call.count("after", 0, LARGEST), call.count("limit", _MOST_ENTRIES, _MOST_ENTRIES))
    return call.respond({"kind": "list", "itemKind": "audit", "items": [_entry_document(each) for each in rows]})


async def append_record(call: Call) -> Response:
    """Append a record to an audit context."""
    key = _context(call, "writeAudit")
    wanted = read_as(await call.body(), NewAuditRecord)
    if len(msgspec.json.encode(wanted.details)) > _MOST_DETAILS:
        raise Problem(400, f"details: more than {_MOST_DETAILS} bytes")
    record = AuditRecord(
        at=call.api.clock.now(),
        principal=call.caller.principal,
        credential=call.caller.credential,
        address=address_of(call.request),
        request_id=call.request_id,
        action=wanted.action,
        target=wanted.target,
        outcome=wanted.outcome,
        details=wanted.details,
    )
    return call.respond(_record_document(call.api.store.audit_records.append(key.name, record)), 201)


async def list_records(call: Call) -> Response:
    """Records of an audit context after the number ``after``; each has the hash that chains it to the one before."""
    key = _context(call, "readAudit")
    after, limit = call.count("after", 0, LARGEST), call.count("limit", _MOST_ENTRIES, _MOST_ENTRIES)
    items = [_record_document(each) for each in call.api.store.audit_records.list(key.name, after, limit)]
    return call.respond({"kind": "list", "itemKind": "record", "items": items})


def _context(call: Call, permission: str) -> Key:
    key = Key(Kind.AUDITCTX, "", call.request.path_params["name"])
    call.require(permission, key)
    if str(key) == AUDIT_CONTEXT:
        raise Problem(400, f"{key} has the audit log of this server, which it alone writes: GET /org/{call.org}/-audit")
    if not call.reader.records.applied.exists(key):
        raise NotFoundError(f"there is no {key}")
    return key


def _entry_document(row: AuditRow) -> dict[str, object]:
    return {"number": row.number, **msgspec.to_builtins(row.entry), "at": iso(row.entry.at), "hash": row.hash}


def _record_document(row: AuditRecordRow) -> dict[str, object]:
    return {"number": row.number, **msgspec.to_builtins(row.record), "at": iso(row.record.at), "hash": row.hash}


_RECORDS = "/org/{org}/auditctx/{name}/-record"

OPERATIONS = (
    Operation("GET", "/org/{org}/-audit", read_audit, "Read the audit log.", "readAudit",
              parameters=("after", "limit")),
    # A record has all that an entry of the audit log would have, so it makes none.
    Operation("POST", _RECORDS, append_record, "Append a record to an audit context.", "writeAudit",
              {201: "The record."}, body=NewAuditRecord),
    Operation("GET", _RECORDS, list_records, "Read the records of an audit context.", "readAudit",
              parameters=("after", "limit")),
)  # fmt: skip
