"""The token of each workload: created once, valid for its lifetime, readable only for the daemon."""

from __future__ import annotations

import base64
import hmac
import re
from contextlib import suppress
from pathlib import Path
from secrets import token_urlsafe
from typing import NamedTuple

from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.engines.host.part import LocationPart
from reconciler.model.key import Key, Kind

TOKEN_PREFIX = "rw_"
"""How tokens of workloads begin, so that scanners find them where they do not belong."""
FOLDER = "tokens"
"""The directory of the tokens, in that of the location."""
_NAME = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*")


class TokenOwner(NamedTuple):
    """The workload that a token was made for, and its location."""

    location: str
    key: Key


class Tokens(LocationPart):
    """Files ``GVC/WORKLOAD`` below ``directory``, of ``location`` (docs/platform/workload.md#the-workloads-token)."""

    def __init__(self, directory: Path, location: str) -> None:
        self._directory = directory
        self._location = location

    def of(self, key: Key) -> str:
        """The token of the workload ``key``, created if it has none. Raises EngineError."""
        path = self._path(key)
        with suppress(FileNotFoundError):
            try:
                known = path.read_bytes()
            except FileNotFoundError:
                raise
            except OSError as error:
                raise write_error(f"the token of {key} cannot be read", error) from None
            if known.startswith(TOKEN_PREFIX.encode()):
                return known.decode("ascii", "replace")
        place = f"{self._location}/{key.gvc}/{key.name}".encode()
        name = base64.urlsafe_b64encode(place).decode().rstrip("=")
        token = f"{TOKEN_PREFIX}{name}.{token_urlsafe(32)}"
        write_atomic(path, token.encode(), 0o600)
        return token

    def forget(self, key: Key) -> None:
        """Delete the token of ``key``, so that a recreated workload gets a new one."""
        path = self._path(key)
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()

    def _path(self, key: Key) -> Path:
        return self._directory / key.gvc / key.name


def token_owner(hosts: Path, token: str) -> TokenOwner | None:
    """Whose token this is, of the locations whose files are below ``hosts``; None if it is unknown or was deleted."""
    name = token.removeprefix(TOKEN_PREFIX).partition(".")[0]
    try:
        place = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
        location, gvc, workload = place.split("/")
        if not all(map(_NAME.fullmatch, (location, gvc, workload))):
            return None
        known = (hosts / location / FOLDER / gvc / workload).read_bytes()
    except (ValueError, OSError):
        return None
    if not hmac.compare_digest(known, token.encode("utf-8", "surrogatepass")):
        return None
    return TokenOwner(location, Key(Kind.WORKLOAD, gvc, workload))
