"""The token of each workload: created once, valid for its lifetime, readable only for the daemon."""

from __future__ import annotations

import hmac
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.engines.host.part import LocationPart
from reconciler.engines.workload.tokens import TOKEN_PREFIX, make_token
from reconciler.model.key import Key

FOLDER = "tokens"
"""The directory of the tokens, in that of the location."""


class WorkloadTokens(LocationPart):
    """Files ``GVC/WORKLOAD`` below ``directory``, of ``location`` (docs/platform/workload.md#the-workloads-token)."""

    def __init__(self, directory: Path, location: str) -> None:
        self._directory = directory
        self._location = location

    def of(self, key: Key) -> str:
        """The token of the workload ``key``, created if it has none. Raises EngineError."""
        path = self._path(key)
        with suppress(FileNotFoundError):
            try:
                stored = path.read_bytes()
            except FileNotFoundError:
                raise
            except OSError as error:
                raise write_error(f"the token of {key} cannot be read", error) from None
            if stored.startswith(TOKEN_PREFIX.encode()):
                return stored.decode("ascii", "replace")
        token = make_token(self._location, key)
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


def is_stored(root: Path, key: Key, token: str) -> bool:
    """Whether ``token`` is that of the workload ``key``, of the location whose directory is ``root``."""
    try:
        stored = (root / FOLDER / key.gvc / key.name).read_bytes()
    except (ValueError, OSError):
        return False
    return hmac.compare_digest(stored, token.encode("utf-8", "surrogatepass"))
