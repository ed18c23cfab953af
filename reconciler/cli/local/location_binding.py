"""Binds to this machine what locations new commits name: `reconciler up` wrote its settings before them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.local_settings import Followed, add_locations, read_locations
from reconciler.errors import ReconcilerError
from reconciler.logs import log
from reconciler.source.source import Source, open_source

if TYPE_CHECKING:
    from reconciler.settings import Settings

POLL_SECONDS = 1.0
"""Seconds between two looks at the branch."""


async def bind_new_locations(settings: Settings, file: Path) -> None:
    """Add each location that a later commit names to the settings in ``file``, which the daemon reloads.

    It goes on until it is cancelled. None is ever removed: what runs there would lose its engine.
    """
    import pygit2

    bound, seen = {*settings.locations}, ""
    source = open_source(settings.sources[0], settings.state)
    while True:
        # The daemon reports what is wrong with the source.
        with suppress(ReconcilerError, OSError, KeyError, pygit2.GitError):
            commit = await asyncio.to_thread(_find_commit, source)
            if commit != seen:
                names = await asyncio.to_thread(_read_names, source, commit)
                if new := names - bound:
                    await asyncio.to_thread(add_locations, file, sorted(new))
                    log().info("locations", bound=sorted(new), settings=str(file))
                bound |= names
                seen = commit
        await asyncio.sleep(POLL_SECONDS)


def _find_commit(source: Source) -> str:
    """The newest commit that is on this machine. Raises SourceError."""
    return source.repository.resolve().commit


def _read_names(source: Source, commit: str) -> set[str]:
    path = source.settings.url if source.mirror is None else str(source.mirror.path)
    below = source.settings.path.strip("/")
    return {*read_locations(Followed(path, "", commit, "" if below == "." else below))}
