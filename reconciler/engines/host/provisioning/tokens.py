"""The token of each workload: created once, valid for its lifetime, readable only for the daemon."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from secrets import token_urlsafe

from reconciler.engines.host.disk.atomic import write_atomic, write_error
from reconciler.model.key import Key


class Tokens:
    """Files ``GVC/WORKLOAD`` below ``directory`` (docs/platform/workload.md#the-workloads-token)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

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
            if known:
                return known.decode("ascii", "replace")
        token = token_urlsafe(32)
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
