"""Logins of machines without a browser (RFC 8628): a person enters a short code at another one."""

from __future__ import annotations

import secrets
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from reconciler.api.oidc.login import LoginIdentity
from reconciler.api.problems import OAuthProblem, Problem
from reconciler.clock import Clock

DEVICE_SECONDS = 600.0
"""Seconds in which a person enters the code."""
INTERVAL_SECONDS = 5
"""Seconds that a machine waits between two questions."""
MOST_DEVICES = 1_000
"""Logins of machines that wait at once."""
MOST_OF_ADDRESS = 20
"""Those of one address, so that it does not keep others out."""
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels, so that no code is a word (RFC 8628, 6.1)
_LENGTH = 8


class DeviceCodes(NamedTuple):
    """The codes of a login: one for the machine, one for the person."""

    device_code: str
    user_code: str


class PendingDevice(msgspec.Struct, frozen=True):
    """A machine that waits: since it asked from ``address``, until ``ends``; ``identity`` once a person allowed it."""

    device_code: str
    address: str
    ends: float
    asked: float
    identity: LoginIdentity | None = None
    denied: bool = False


class DeviceLogins:
    """The machines that wait for a person."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, PendingDevice] = {}

    def begin(self, address: str) -> DeviceCodes:
        """The codes for a machine that asks from ``address``. Raises Problem 429 or 503 if too many wait."""
        now = self._clock.monotonic()
        self._waiting = {code: device for code, device in self._waiting.items() if device.ends > now}
        if sum(device.address == address for device in self._waiting.values()) >= MOST_OF_ADDRESS:
            raise Problem(429, "too many machines wait for a login at this address", headers={"Retry-After": "60"})
        if len(self._waiting) >= MOST_DEVICES:
            raise Problem(503, "too many machines wait for a login; try again later")
        codes = DeviceCodes(secrets.token_urlsafe(32), _new_user_code())
        ends = now + DEVICE_SECONDS
        self._waiting[codes.user_code] = PendingDevice(codes.device_code, address, ends, now - INTERVAL_SECONDS)
        return codes

    def answer(self, user_code: str, identity: LoginIdentity, *, allow: bool) -> PendingDevice | None:
        """Allow the machine with ``user_code``, as ``identity`` writes it, or refuse it; None if none waits for it."""
        device = self._waiting.get(normal_code(user_code))
        if device is None or device.ends <= self._clock.monotonic() or device.denied or device.identity is not None:
            return None
        answered = replace(device, identity=identity if allow else None, denied=not allow)
        self._waiting[normal_code(user_code)] = answered
        return answered

    def refuse(self, user_code: str) -> None:
        """Refuse the machine with ``user_code``, if one waits for it: its person could not log in."""
        device = self._waiting.get(normal_code(user_code))
        if device is not None and device.identity is None:
            self._waiting[normal_code(user_code)] = replace(device, denied=True)

    def poll(self, device_code: str) -> LoginIdentity:
        """The person who allowed the login of a machine; it is over then. Raises Problem 400 with the OAuth error."""
        now = self._clock.monotonic()
        code = next((code for code, device in self._waiting.items() if device.device_code == device_code), "")
        pending_device = self._waiting.get(code)
        if pending_device is None or pending_device.ends <= now:
            raise OAuthProblem("expired_token", "the code of the device is unknown or has expired; begin again")
        if pending_device.denied:
            del self._waiting[code]
            raise OAuthProblem("access_denied", "the login was refused in the browser")
        if pending_device.identity is not None:
            del self._waiting[code]
            return pending_device.identity
        self._waiting[code] = replace(pending_device, asked=now)
        if now - pending_device.asked < INTERVAL_SECONDS:
            raise OAuthProblem("slow_down", f"ask at most every {INTERVAL_SECONDS} s")
        raise OAuthProblem("authorization_pending", "no person has entered the code yet")


def normal_code(text: str) -> str:
    """A user code as it is stored: capital letters, with a hyphen in the middle."""
    letters = "".join(letter for letter in text.upper() if letter in _LETTERS)
    return f"{letters[:4]}-{letters[4:]}"


def _new_user_code() -> str:
    return normal_code("".join(secrets.choice(_LETTERS) for _ in range(_LENGTH)))
