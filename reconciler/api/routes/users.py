"""Users: people whom the org invites, and sessions in their name."""

from __future__ import annotations

from starlette.responses import Response

from reconciler.access.lives import IMPERSONATED
from reconciler.access.rules import Caller
from reconciler.api.call import Call, NoBody
from reconciler.api.oidc.admission import LONGEST_NAME, NAME, name_of
from reconciler.api.problems import Problem
from reconciler.api.routes.admission import admit_invitation
from reconciler.api.routes.changes import delete_resource
from reconciler.api.table import Operation
from reconciler.errors import NotFoundError
from reconciler.manifests.links import full_form
from reconciler.model.key import Key, Kind
from reconciler.times import format_iso_time

IMPERSONATION_SECONDS = 900.0
"""How long a session in the name of another person lasts."""


async def invite_user(call: Call) -> Response:
    """Let a person log in, who is a user from then on."""
    call.require("invite", call.key())
    await call.refuse_body()
    _check_address(call)
    key = Key(Kind.USER, "", name_of(call.reader.records, call.key().name))
    call.require("invite", key)
    if not call.recorded_body(key):
        admit_invitation(call, key)
    call.api.store.people.invite(key.name, call.caller.principal)
    return call.respond({"principal": str(key)}, 201, {"Location": full_form(key, call.org)})


def _check_address(call: Call) -> None:
    """Refuse an invitation of what is no address: nobody could ever log in with it.

    Where the settings let another claim than the address name people, any name may be theirs.
    """
    name, settings = call.key().name, call.api.settings.api
    oidc = settings.oidc if settings is not None else None
    if (oidc is not None and oidc.email_claim != "email") or call.reader.records.applied.exists(call.key()):
        return
    local, _, domain = name.rpartition("@")
    if not (local and domain) or len(name) > LONGEST_NAME or not NAME.fullmatch(name):
        raise Problem(400, f"{name[:60]!r} is no e-mail address such as ann@example.com")


async def impersonate_user(call: Call) -> Response:
    """A short session in the name of a user, without the groups that their provider names."""
    key = call.existing("impersonate")
    await call.refuse_body()
    session = Caller(str(key), credential=f"{IMPERSONATED}{call.caller.principal}")
    token = call.api.store.add_session(session, IMPERSONATION_SECONDS)
    expires = format_iso_time(call.api.clock.now() + IMPERSONATION_SECONDS)
    return call.respond({"token": token, "principal": str(key), "expires": expires}, 201)


async def remove_user(call: Call) -> Response:
    """Remove a user and end their sessions; a manifest that declares the user goes too, by a commit."""
    key = Key(Kind.USER, "", call.request.path_params["name"])
    call.require("delete", key)
    dry = call.flag("dryRun") is True
    removed = not dry and call.api.store.people.remove(key.name)
    if call.reader.records.applied.exists(key):
        return await delete_resource(call)
    if not removed and call.api.store.people.find(key.name) is None:
        raise NotFoundError(f"there is no {key}")
    return call.respond({"principal": str(key)}, 200 if dry else 202)


_USER = "/org/{org}/user/{name}"

OPERATIONS = (
    Operation(
        "POST",
        _USER + "/-invite",
        invite_user,
        "Let the person with this address log in.",
        "invite",
        {201: "They can log in."},
        body=NoBody,
        optional_body=True,
        changes=True,
    ),
    Operation(
        "POST",
        _USER + "/-impersonate",
        impersonate_user,
        "Get a session in the name of a user.",
        "impersonate",
        {201: "The session."},
        body=NoBody,
        optional_body=True,
        changes=True,
    ),
    Operation(
        "DELETE",
        _USER,
        remove_user,
        "Remove a user.",
        "delete",
        {200: "What a dry run would remove.", 202: "Removed."},
        parameters=("dryRun",),
        changes=True,
    ),
)
