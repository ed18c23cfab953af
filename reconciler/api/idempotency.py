"""Requests that clients repeat, since they do not know whether the first one arrived: none changes anything twice."""

from __future__ import annotations

import hashlib

import msgspec
from starlette.responses import Response

from reconciler.access.store import StoredAnswer
from reconciler.api.call import Call
from reconciler.api.problems import JSON, Problem
from reconciler.api.table import Handler
from reconciler.changes.requests import EarlierChange
from reconciler.errors import ReconcilerError

_LONGEST_KEY = 200
_REPLAYED = {"Idempotent-Replayed": "true"}


def make_idempotent(change: Handler) -> Handler:
    """A request that is repeated with its ``Idempotency-Key`` changes nothing again, and gets the first answer.

    A refusal is not remembered: the request can be repeated once its cause is gone.
    """

    async def answer(call: Call) -> Response:
        name = call.request.headers.get("idempotency-key", "")[:_LONGEST_KEY]
        if not name or call.flag("dryRun") is True:
            return await change(call)
        # With a key, since the body may have a secret, which could be guessed from a plain digest.
        digest = hashlib.blake2b(key=call.reader.records.secret_key[:64], digest_size=32)
        digest.update(f"{call.request.method} {call.request.url.path}?{call.request.url.query}\n".encode())
        digest.update(await call.raw_body())
        # A repetition while the first request is in progress waits for its answer.
        async with call.api.answer_lock(call.caller.principal, name):
            past = call.api.store.begin_answer(call.caller.principal, name, digest.digest(), call.request_id)
            if past is not None and past.digest != digest.digest():
                raise Problem(409, "this Idempotency-Key was used for another request")
            if past is not None and past.status is not None:
                return Response(past.body, past.status, _REPLAYED, JSON)
            response = await _perform_change(call, change, past)
            stored = _omit_fields(bytes(response.body), call.shown_once)
            call.api.store.end_answer(call.caller.principal, name, response.status_code, stored)
            return response

    return answer


async def _perform_change(call: Call, change: Handler, past: StoredAnswer | None) -> Response:
    """The answer to a request; ``past`` is an earlier attempt that got none, but may have made the change."""
    if past is None:
        return await change(call)
    call.continue_change(past.request_id)
    if past_change := await call.in_git(lambda: call.api.writers.find_change(call.change_id)):
        return earlier_answer(call, past_change)
    try:
        return await change(call)
    except (Problem, ReconcilerError):
        # The daemon may have applied the earlier change since, so that this one is refused.
        if past_change := await call.in_git(lambda: call.api.writers.find_change(call.change_id)):
            return earlier_answer(call, past_change)
        raise


def _omit_fields(body: bytes, without: frozenset[str]) -> bytes:
    """``body``, as a repetition of the request gets it: without the fields ``without``."""
    if not without:
        return body
    return msgspec.json.encode(
        {name: value for name, value in msgspec.json.decode(body).items() if name not in without}
    )


def earlier_answer(call: Call, change: EarlierChange) -> Response:
    """The answer to ``call``, whose change an earlier attempt made."""
    return call.respond({"change": {"branch": change.branch, "commit": change.commit}}, call.done_status, _REPLAYED)
