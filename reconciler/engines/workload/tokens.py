"""The token of each workload: its form, which names the workload and its location."""

from __future__ import annotations

import base64
import re
from secrets import token_urlsafe
from typing import NamedTuple

from reconciler.model.key import Key, Kind

TOKEN_PREFIX = "rw_"
"""How tokens of workloads begin, so that scanners find them where they do not belong."""
_NAME = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*")


class TokenOwner(NamedTuple):
    """The workload that a token was made for, and its location."""

    location: str
    key: Key


def make_token(location: str, key: Key) -> str:
    """A new token of the workload ``key`` at ``location``."""
    owner = f"{location}/{key.gvc}/{key.name}".encode()
    name = base64.urlsafe_b64encode(owner).decode().rstrip("=")
    return f"{TOKEN_PREFIX}{name}.{token_urlsafe(32)}"


def parse_token(token: str) -> TokenOwner | None:
    """Whose token this claims to be, which only its engine can confirm; None if it has not the form of one."""
    name = token.removeprefix(TOKEN_PREFIX).partition(".")[0]
    try:
        owner = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        location, gvc, workload = owner.split("/")
    except ValueError:
        return None
    if not all(map(_NAME.fullmatch, (location, gvc, workload))):
        return None
    return TokenOwner(location, Key(Kind.WORKLOAD, gvc, workload))
