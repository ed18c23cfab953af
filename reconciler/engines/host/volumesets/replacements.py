"""Which volume sets are being replaced, and which were: known through crashes, so that no step acts twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_durable, write_error
from reconciler.engines.host.volumes.layout import read_json
from reconciler.errors import EngineError
from reconciler.model.key import Key

_REMEDY = "restore this file, or remove it if no replacement of a volume set was interrupted, and restart the daemon"


class Replacement(msgspec.Struct, frozen=True):
    """The last replacement of a volume set, by the ``digest`` of the manifest that it is for."""

    digest: str
    done: bool = False


class Replacements:
    """The replacements below ``root``, the directory of a location. Methods raise EngineError."""

    def __init__(self, root: Path) -> None:
        self._file = root / "replaced-volumesets.json"
        self._last: dict[str, Replacement] = {}
        self._damage: EngineError | None = None
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        """Read what an earlier daemon began. Without a valid file, no volume set can be replaced."""
        self._damage = None
        try:
            self._last = await asyncio.to_thread(self._read)
        except EngineError as error:
            self._last, self._damage = {}, error

    def check(self) -> None:
        """Raise EngineError if it is unknown what an earlier daemon began: that may have deleted volumes already."""
        if self._damage is not None:
            raise self._damage

    def is_open(self, key: Key) -> bool:
        """Whether ``key`` is being replaced; a new volume would be deleted when that is repeated."""
        replacement = self._last.get(str(key))
        return replacement is not None and not replacement.done

    def is_done(self, key: Key, digest: str) -> bool:
        """Whether the last replacement of ``key`` was for ``digest`` and is done."""
        return self._last.get(str(key)) == Replacement(digest, done=True)

    async def begin(self, key: Key, digest: str) -> None:
        """Write down that ``key`` is being replaced."""
        await self._write(key, Replacement(digest))

    async def finish(self, key: Key) -> None:
        """Write down that the replacement of ``key`` is done."""
        digest = self._last[str(key)].digest
        await self._write(key, Replacement(digest, done=True))

    async def forget(self, key: Key) -> None:
        """Forget the last replacement of ``key``, which has changed since. Does nothing if there was none."""
        if str(key) in self._last:
            await self._write(key, None)

    def _read(self) -> dict[str, Replacement]:
        return read_json(self._file, dict[str, Replacement], _REMEDY) or {}

    async def _write(self, key: Key, replacement: Replacement | None) -> None:
        """Set the last replacement of ``key``. Steps on other volume sets may do the same at this moment."""
        async with self._writing:
            replacements = {name: replacement for name, replacement in self._last.items() if name != str(key)}
            if replacement is not None:
                replacements[str(key)] = replacement
            try:
                await asyncio.to_thread(write_durable, self._file, msgspec.json.encode(replacements))
            except OSError as error:
                raise write_error("the replacements of volume sets cannot be written", error) from None
            self._last = replacements
