"""Requests that clients repeat, since they do not know whether the first one arrived: none changes anything twice."""

from __future__ import annotations

import asyncio
import hashlib

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import JSON, Problem
from reconciler.api.table import Handler
from reconciler.operations.commands import open_existing
from reconciler.records.store import Records

_LONGEST_KEY = 200


def idempotent(change: Handler) -> Handler:
    """A request that is repeated with its ``Idempotency-Key`` changes nothing again, and gets the first answer."""

    async def answer(call: Call) -> Response:
        name = call.request.headers.get("idempotency-key", "")[:_LONGEST_KEY]
        if not name or call.query("dryRun") == "true":
            return await change(call)
        store, caller = call.api.store, call.caller.principal
        digest = hashlib.sha256(f"{call.request.method} {call.request.url.path}\n".encode())
        digest.update(await call.raw_body())
        past = store.begin_answer(caller, name, digest.digest(), call.request_id)
        if past is not None:
            if past.digest != digest.digest():
                raise Problem(409, "this Idempotency-Key was used for another request")
            if past.status is not None:
                return Response(past.body, past.status, {"Idempotent-Replayed": "true"}, JSON)
            if found := await asyncio.to_thread(_made_before, call, past.request_id):
                return call.respond({"change": {"commit": found}}, headers={"Idempotent-Replayed": "true"})
        response = await change(call)
        store.end_answer(caller, name, response.status_code, bytes(response.body))
        return response

    return answer


def _made_before(call: Call, request_id: str) -> str:
    """The commit of a request that was cut off before its answer, "" if it made none."""
    with open_existing(call.api.settings, call.api.clock) as records:
        return _find_commit(call, records, request_id)


def _find_commit(call: Call, records: Records, request_id: str) -> str:
    from reconciler.operations.manifest_commits import SourceWriter  # only writes load the reader of Git

    for source in call.api.settings.sources:
        if source.branch and not source.read_only:
            writer = SourceWriter(call.api.settings, source, records, call.api.clock)
            if found := writer.find_request(request_id):
                return found
    return ""
