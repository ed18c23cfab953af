"""Credentials: who one is, the first login, and keys of service accounts."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.responses import Response

from reconciler.access.rules import SUPERUSERS, Caller
from reconciler.access.store import SESSION_PREFIX, ServiceKey
from reconciler.api.authentication import make_unauthorized_problem, parse_bearer_token
from reconciler.api.call import Call, read_as
from reconciler.api.problems import Problem
from reconciler.api.table import ANY, PUBLIC, Operation
from reconciler.errors import NotFoundError
from reconciler.manifests.links import full_form
from reconciler.model.key import Key, Kind
from reconciler.times import format_iso_time, parse_time

SESSION_SECONDS = 3600.0
"""How long a session lasts that a bootstrap token began."""
BOOTSTRAP = f"{Kind.USER}/bootstrap"
"""The principal of that session."""


class BootstrapLogin(msgspec.Struct, forbid_unknown_fields=True):
    """The token in the file that the first start wrote."""

    token: str


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    """A key to add; ``expires`` is a time such as 2027-01-31T12:00:00Z, "" for a key that does not expire."""

    description: Annotated[str, msgspec.Meta(max_length=250)] = ""
    expires: str = ""


async def log_in_first(call: Call) -> Response:
    """Exchange the bootstrap token for a session of a superuser; the token is void from then on."""
    login = read_as(await call.body(), BootstrapLogin)
    if not call.api.store.use_bootstrap(login.token):
        problem = make_unauthorized_problem("the bootstrap token is unknown, or was used before")
        raise call.api.authenticator.refusal(call.request, problem, BOOTSTRAP)
    call.api.authenticator.accept(call.request, BOOTSTRAP)
    caller = Caller(BOOTSTRAP, frozenset({str(SUPERUSERS)}))
    token = call.api.store.add_session(caller, SESSION_SECONDS)
    expires = format_iso_time(call.api.clock.now() + SESSION_SECONDS)
    return call.respond({"token": token, "principal": BOOTSTRAP, "expires": expires}, 201)


async def log_out(call: Call) -> Response:
    """End the session of this request."""
    text = parse_bearer_token(call.request.headers.get("authorization", ""))
    if not text.startswith(SESSION_PREFIX) or not call.api.store.end_session(text):
        raise Problem(400, "this credential is no session; revoke a key of a service account to end its use")
    return Response(status_code=204)


async def show_caller(call: Call) -> Response:
    """The principal of this request and its groups."""
    groups = call.reader.access().principals(call.caller) - {call.caller.principal}
    return call.respond({"principal": call.caller.principal, "groups": sorted(groups), "org": call.org})


async def add_key(call: Call) -> Response:
    """Add a key to a service account. Its text is in this answer alone; the server stores a hash."""
    key = _require_service_account(call, "addKey")
    new_key = read_as(await call.body(), NewKey)
    expires = _parse_expiry(new_key.expires) if new_key.expires else None
    if expires is not None and expires <= call.api.clock.now():
        raise Problem(400, f"expires: {new_key.expires} has passed")
    service_key, text = call.api.store.add_key(key.name, new_key.description, call.caller.principal, expires)
    link = f"{full_form(key, call.org)}/-key/{service_key.id}"
    return call.respond({**_key_document(service_key), "key": text}, 201, {"Location": link})


async def list_keys(call: Call) -> Response:
    """The keys of a service account, without their texts."""
    key = _require_service_account(call, "view")
    items = [_key_document(service_key) for service_key in call.api.store.keys(key.name)]
    return call.respond({"kind": "list", "itemKind": "key", "items": items})


async def revoke_key(call: Call) -> Response:
    """Revoke a key: the next request with it is refused."""
    key = _require_service_account(call, "edit")
    name = call.request.path_params["id"]
    if not call.api.store.revoke_key(key.name, name):
        raise NotFoundError(f"{key} has no key {name[:60]!r}")
    return Response(status_code=204)


def _require_service_account(call: Call, permission: str) -> Key:
    key = Key(Kind.SERVICEACCOUNT, "", call.request.path_params["name"])
    call.require(permission, key)
    if not call.reader.records.applied.exists(key):
        raise NotFoundError(f"there is no {key}")
    return key


def _parse_expiry(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError:
        raise Problem(400, f"expires: {text[:40]!r} is no time such as 2027-01-31T12:00:00Z") from None


def _key_document(key: ServiceKey) -> dict[str, str | None]:
    return {
        "name": key.id,
        "description": key.description,
        "created": format_iso_time(key.created),
        "createdBy": key.by,
        "expires": format_iso_time(key.expires) if key.expires is not None else None,
        "lastUsed": format_iso_time(key.used) if key.used is not None else None,
    }


_KEYS = "/org/{org}/serviceaccount/{name}/-key"

OPERATIONS = (
    Operation(
        "POST",
        "/login/bootstrap",
        log_in_first,
        "Exchange the bootstrap token for a session.",
        PUBLIC,
        {201: "The session.", 401: "Unknown or used."},
        body=BootstrapLogin,
        changes=True,
        credential=True,
    ),
    Operation("DELETE", "/login", log_out, "End this session.", ANY, {204: "Ended."}, changes=True),
    Operation("GET", "/whoami", show_caller, "Show the principal of this request.", ANY),
    Operation(
        "POST",
        _KEYS,
        add_key,
        "Add a key to a service account.",
        "addKey",
        {201: "The key."},
        body=NewKey,
        changes=True,
    ),
    Operation("GET", _KEYS, list_keys, "List the keys of a service account.", "view"),
    Operation("DELETE", _KEYS + "/{id}", revoke_key, "Revoke a key.", "edit", {204: "Revoked."}, changes=True),
)
