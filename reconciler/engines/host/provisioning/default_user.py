"""The user of containers whose manifest names none: a setting, which applies only if the daemon runs as root."""

from __future__ import annotations

import os
import pwd

from reconciler.errors import EngineError
from reconciler.reasons import Reason


def resolve_user(asked: int | None, default: str) -> int | None:
    """The user id: ``asked`` from the manifest, otherwise ``default``, a name or a number.

    None for the daemon's own user. Without root, ``default`` has no effect. Raises EngineError, reason UserNotFound.
    """
    if os.geteuid() != 0:
        return asked
    number = asked if asked is not None else _number(default)
    return None if number == 0 else number


def _number(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        message = f"this host has no user {name}, which host.defaultUser names for containers without runAsUser"
        raise EngineError(message, reason=Reason.USER_NOT_FOUND) from None
