"""Webhooks of forges."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from reconciler.api.authentication import make_unauthorized_problem
from reconciler.api.call import Call
from reconciler.api.oidc.exchange import LONGEST_TOKEN, matches_claims
from reconciler.api.problems import Problem
from reconciler.api.table import PUBLIC, Operation
from reconciler.api.webhooks import delivery_id, is_signed, read_secret
from reconciler.settings import SenderSettings


async def take_delivery(call: Call) -> Response:
    """Take a delivery for a source: the daemon reads the source now. A repeated one is accepted, and has no effect."""
    name = call.request.path_params["name"]
    hook = call.api.webhooks.find(name)
    file = hook.secret_file if hook is not None else None
    secret = await asyncio.to_thread(read_secret, file) if file is not None else b""
    if hook is None or not (secret or hook.oidc):
        raise Problem(404, f"there is no webhook for the source {name[:60]!r}")
    body = await call.raw_body()
    headers = dict(call.request.headers)
    signed = await _is_of(call, hook.oidc) if hook.oidc else is_signed(hook.forge, headers, body, secret)
    if not signed:
        problem = make_unauthorized_problem("the signature of the delivery is missing or wrong")
        raise call.api.authenticator.refusal(call.request, problem, f"webhook/{name}")
    call.api.authenticator.accept(call.request, f"webhook/{name}")
    taken = call.api.webhooks.accept(name, delivery_id(hook.forge, headers, body))
    return call.respond({"message": f"the daemon reads {name}" if taken else "delivered before"}, 202)


async def _is_of(call: Call, sender: SenderSettings) -> bool:
    """Whether the request has a valid token of ``sender``."""
    scheme, _, token = call.request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token or len(token) > LONGEST_TOKEN:
        return False
    try:
        return matches_claims(sender, await call.api.issuers.of(sender).claims(token, sender.audience))
    except Problem as refused:
        if refused.status >= 500:  # the issuer does not answer: the sender delivers again
            raise
        return False


OPERATIONS = (
    Operation(
        "POST",
        "/webhook/{name}",
        take_delivery,
        "Take a webhook of a forge.",
        PUBLIC,
        {202: "Taken.", 401: "The signature is missing or wrong."},
        credential=True,
    ),
)
