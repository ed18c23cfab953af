"""Watches the refs of repositories on this host, so that a commit is found at once, not at the next poll."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

_DEBOUNCE_MS = 20
_STEP_MS = 30
"""Milliseconds between the library's checks of kernel events; an idle daemon spends most of its time on them."""
_RECHECK_SECONDS = 2.0

_Identities = dict[Path, tuple[int, int]]


async def watch_refs(
    paths: Sequence[Path], stop: asyncio.Event, call: Callable[[Path], None], ignore: Sequence[str] = ()
) -> None:
    """Call ``call(path)`` whenever a ref of the Git directory ``path`` may have moved, until ``stop`` is set.

    Changes of refs in ``ignore``, or of folders of refs, cause no call (``refs/heads/reconciler/status``). A directory
    that is missing, or is replaced, is watched once it exists. Polls go on, so the watch only hastens them.
    Cancelling sets ``stop`` too.
    """

    def moved(owner: Path, names: Iterable[str]) -> None:
        if any(_is_of_a_ref(name, ignore) for name in names):
            call(owner)

    # Two watches: one of the whole Git directory would report every object written.
    deep = {path / part: path for path in paths for part in ("refs", "reftable")}
    async with asyncio.TaskGroup() as watches:
        watches.create_task(_follow({path: path for path in paths}, False, stop, moved))
        watches.create_task(_follow(deep, True, stop, moved))


_Moved = Callable[[Path, Iterable[str]], None]


async def _follow(owners: Mapping[Path, Path], recursive: bool, stop: asyncio.Event, moved: _Moved) -> None:
    """Watch the directories ``owners`` (each with its Git directory); watch again when one is replaced."""
    watched = _identities(owners)
    while not stop.is_set():
        if watched:
            await _watch(owners, watched, recursive, stop, moved)
        now = _identities(owners)
        for path in now:
            if now[path] != watched.get(path):
                moved(owners[path], ["refs/"])
        if now == watched:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RECHECK_SECONDS):
                    await stop.wait()
        watched = now


async def _watch(
    owners: Mapping[Path, Path], watched: _Identities, recursive: bool, stop: asyncio.Event, moved: _Moved
) -> None:
    """Report changes until ``stop``, until a directory is replaced, or until the kernel refuses (inotify limits)."""
    from watchfiles import awatch
    from watchfiles._rust_notify import WatchfilesRustInternalError

    changes = awatch(
        *watched,
        watch_filter=None,
        debounce=_DEBOUNCE_MS,
        step=_STEP_MS,
        stop_event=stop,
        rust_timeout=int(_RECHECK_SECONDS * 1000),
        yield_on_timeout=True,
        recursive=recursive,
    )
    with contextlib.suppress(OSError, WatchfilesRustInternalError):
        async with contextlib.aclosing(changes):
            async for batch in changes:
                for owner in dict.fromkeys(owners.values()):
                    below = f"{owner}/"
                    moved(owner, [path.removeprefix(below) for _, path in batch if path.startswith(below)])
                if _identities(owners) != watched:
                    return


def _identities(directories: Iterable[Path]) -> _Identities:
    """The existing directories, each with its device and inode, which differ for a replaced directory."""
    found = {}
    for path in directories:
        with contextlib.suppress(OSError):
            stat = path.stat()
            found[path] = (stat.st_dev, stat.st_ino)
    return found


def _is_of_a_ref(name: str, ignore: Sequence[str]) -> bool:
    """Whether a change of ``name``, relative to the Git directory, can mean a move of a ref outside ``ignore``."""
    if name.endswith(".lock") or not (name in ("HEAD", "packed-refs") or name.startswith(("refs/", "reftable/"))):
        return False
    # The folders above an ignored ref appear with it.
    return not any(f"{name}/".startswith(f"{ref}/") or ref.startswith(f"{name}/") for ref in ignore)
