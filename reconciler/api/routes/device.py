"""Logins of machines without a browser (RFC 8628)."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.responses import Response

from reconciler.access.rules import Caller
from reconciler.api.authentication import address_of
from reconciler.api.call import Call, read_as
from reconciler.api.oidc.admission import admitted
from reconciler.api.oidc.device import DEVICE_SECONDS, INTERVAL_SECONDS
from reconciler.api.oidc.login import LOGIN_SECONDS, Identity, new_request
from reconciler.api.problems import HTML, Problem
from reconciler.api.routes.login import logins_of, to_provider
from reconciler.api.table import PUBLIC, Operation
from reconciler.model.key import Kind

_LONGEST_CODE = 20


class DeviceRequest(msgspec.Struct):
    """A login of a machine; it has no fields that matter."""


class DeviceAnswer(msgspec.Struct):
    """What a person answers at the page for devices; ``identity`` is from its form."""

    identity: str
    user_code: str
    answer: Literal["allow", "deny"]


async def begin_device(call: Call) -> Response:
    """Begin the login of a machine: a code for it, and one that a person enters at ``verification_uri``."""
    logins = logins_of(call)
    codes = logins.devices.begin(address_of(call.request))
    place = f"{logins.endpoint}/login/device"
    return call.respond(
        {
            "device_code": codes.device_code,
            "user_code": codes.user_code,
            "verification_uri": place,
            "verification_uri_complete": f"{place}?user_code={codes.user_code}",
            "expires_in": int(DEVICE_SECONDS),
            "interval": INTERVAL_SECONDS,
        }
    )


async def open_device_page(call: Call) -> Response:
    """Log in at the provider, then enter the code of a machine."""
    return await to_provider(call, new_request(user_code=call.query("user_code")[:_LONGEST_CODE]))


async def answer_device(call: Call) -> Response:
    """Allow or refuse the login of a machine, with the form of the page."""
    from reconciler.api.oidc.pages import message_page  # all names of characters in HTML: half a megabyte

    wanted = read_as(await call.form(), DeviceAnswer)
    logins = logins_of(call)
    identity = logins.seal.open(wanted.identity, Identity, LOGIN_SECONDS)
    if identity is None:
        raise Problem(401, f"the login is too old; open {logins.endpoint}/login/device again")
    issuer = logins.people.settings.issuer
    call.act_as(Caller(f"{Kind.USER}/{admitted(call, identity, issuer).name}", credential=f"login at {issuer}"))
    # A code is short enough to be guessed, so that whoever guesses waits; others at the same address do not.
    call.api.authenticator.check_account(call.caller.principal)
    device = logins.devices.answer(wanted.user_code, identity, allow=wanted.answer == "allow")
    if device is None:
        unknown = Problem(404, "no machine waits with this code")
        unknown = call.api.authenticator.refusal(call.request, unknown, call.caller.principal)
        call.note_refusal(unknown)
        return message_page("Unknown code", f"{unknown}. Go back and compare it.", unknown.status)
    if device.denied:
        return message_page("Login refused", "The machine was not logged in.")
    return message_page("Logged in", f"The machine at {device.address} is logged in. You can close this page.")


OPERATIONS = (
    Operation("POST", "/login/device", begin_device, "Begin the login of a machine without a browser.", PUBLIC,
              {200: "Its codes.", 429: "Too many machines wait."}, body=DeviceRequest, optional_body=True, form=True),
    Operation("GET", "/login/device", open_device_page, "Log in with a browser, and enter the code of a machine.",
              PUBLIC, {302: "The browser goes to the provider."}, parameters=("user_code",)),
    Operation("POST", "/login/device/answer", answer_device, "Allow or refuse the login of a machine.", PUBLIC,
              {200: "A page.", 404: "No machine has this code."}, body=DeviceAnswer, form=True, media=HTML,
              changes=True),
)  # fmt: skip
