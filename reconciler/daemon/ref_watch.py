"""Watches the refs of repositories on this host, so that a commit is found at once, not at the next poll."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncinotify import Event, Inotify, Watch

_RECHECK_SECONDS = 2.0
"""Seconds until a Git directory that was missing, or was replaced, is noticed."""

_FOLDERS = ("refs", "reftable")
"""Folders of a Git directory that are watched with all below them; the objects beside them would cause many events."""

_Identity = tuple[tuple[int, int] | None, ...]


async def watch_refs(
    paths: Sequence[Path], stop: asyncio.Event, call: Callable[[Path], None], ignore: Sequence[str] = ()
) -> None:
    """Call ``call(path)`` whenever a ref of the Git directory ``path`` may have moved, until ``stop`` is set.

    Changes of refs in ``ignore``, or of folders of refs, cause no call (``refs/heads/reconciler/status``). A directory
    that is missing, or is replaced, is watched once it exists. Polls go on, so the watch only hastens them. Raises
    OSError if the kernel permits no watch at all.
    """
    from asyncinotify import Inotify

    with Inotify() as kernel:
        watched = [_GitDirectory(path, kernel, call, ignore) for path in paths]
        for each in watched:
            each.renew()
        events = asyncio.create_task(_dispatch(kernel, watched))
        try:
            await _recheck(watched, stop)
        finally:
            events.cancel()


async def _recheck(watched: Sequence[_GitDirectory], stop: asyncio.Event) -> None:
    """Find directories that appear or are replaced, until ``stop`` is set."""
    while not stop.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_RECHECK_SECONDS):
                await stop.wait()
        for each in watched:
            if each.renew():
                each.call(each.path)


async def _dispatch(kernel: Inotify, watched: Sequence[_GitDirectory]) -> None:
    from asyncinotify import Mask

    async for event in kernel:
        lost = Mask.Q_OVERFLOW in event.mask
        for each in watched:
            if lost:
                each.call(each.path)
            else:
                each.take(event)


class _GitDirectory:
    """The watches of one Git directory: of itself, and of each folder of refs."""

    def __init__(self, path: Path, kernel: Inotify, call: Callable[[Path], None], ignore: Sequence[str]) -> None:
        self.path = path
        self.call = call
        self._kernel = kernel
        self._ignore = ignore
        self._identity: _Identity = ()
        self._watches: dict[Path, Watch] = {}

    def renew(self) -> bool:
        """Watch the directory again if it appeared or was replaced, and return whether it was."""
        identity = tuple(_identity(self.path / name) for name in ("", *_FOLDERS))
        if identity == self._identity:
            return False
        for watch in self._watches.values():
            # The kernel has removed the watch of a deleted directory.
            with suppress(OSError):
                self._kernel.rm_watch(watch)
        self._watches = {}
        self._identity = identity
        self._watch(self.path)
        for name in _FOLDERS:
            self._watch_below(self.path / name)
        return True

    def take(self, event: Event) -> None:
        """Report ``event`` if it is of a ref of this directory."""
        from asyncinotify import Mask

        watch, path = event.watch, event.path
        if watch is None or path is None or self._watches.get(watch.path) is not watch:
            return
        self._report(path)
        appeared = Mask.ISDIR in event.mask and event.mask & (Mask.CREATE | Mask.MOVED_TO)
        if appeared and _is_below_refs(self._name(path)):
            self._watch_below(path, is_new=True)

    def _watch_below(self, folder: Path, *, is_new: bool = False) -> None:
        """Watch ``folder`` and all folders below it. In a new one, refs may have come before the watch: report them."""
        self._watch(folder)
        # A folder that is made after this listing causes an event of its parent, which is watched by then.
        with suppress(OSError):
            for each in list(os.scandir(folder)):
                if each.is_dir(follow_symlinks=False):
                    self._watch_below(folder / each.name, is_new=is_new)
                elif is_new:
                    self._report(folder / each.name)

    def _report(self, path: Path) -> None:
        if _is_of_a_ref(self._name(path), self._ignore):
            self.call(self.path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _watch(self, folder: Path) -> None:
        from asyncinotify import Mask

        changes = Mask.CREATE | Mask.MOVE | Mask.DELETE | Mask.CLOSE_WRITE | Mask.ONLYDIR
        # A missing directory is watched later; without a watch, the polls remain.
        with suppress(OSError):
            self._watches[folder] = self._kernel.add_watch(folder, changes)


def _identity(directory: Path) -> tuple[int, int] | None:
    """Device and inode of ``directory``, which differ for a replaced one; None if it is missing."""
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_below_refs(name: str) -> bool:
    return name.partition("/")[0] in _FOLDERS


def _is_of_a_ref(name: str, ignore: Sequence[str]) -> bool:
    """Whether a change of ``name``, relative to the Git directory, can mean a move of a ref outside ``ignore``."""
    if name.endswith(".lock") or not (name in ("HEAD", "packed-refs") or _is_below_refs(name)):
        return False
    # The folders above an ignored ref appear with it.
    return not any(f"{name}/".startswith(f"{ref}/") or ref.startswith(f"{name}/") for ref in ignore)
