"""Watches files of this host with watchfiles, so that a change is noticed at once, and not at the next poll."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from reconciler.bugs import contain_bugs, internal_error
from reconciler.logs import log

STEP_SECONDS = 0.025
"""Seconds between two looks for events of the kernel. Each costs a wake-up: docs/benchmarks.md has what they use."""

RECHECK_SECONDS = 2.0
"""Seconds until a directory that was missing or replaced is noticed, and any change while the kernel watches none."""

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0
"""Seconds until a watch that failed is tried again: twice as many after each failure."""

_END_SECONDS = 1.0
"""Seconds that ``close`` waits for the thread, should a disk not answer."""

_FEW_FILES = 100
"""So many files are compared at every recheck; more of them only when an event or their directory shows a change."""

_MOST_DIRECTORIES = 1_000
_MOST_FILES = 10_000
"""The most that is watched below one directory."""

_Identity = tuple[int, int]
"""Device and inode: a replaced directory has another."""


class _Version(NamedTuple):
    """What another content of a file changes, or another file in its place; the time is in nanoseconds."""

    device: int
    inode: int
    size: int
    changed: int


class WatchedFiles(NamedTuple):
    """Files whose change causes ``call`` on the event loop; the kernel watches the directories that have them.

    Both lists are of absolute paths, and may name what does not exist. A change of another file in these directories
    causes no call.
    """

    list_directories: Callable[[], Iterable[Path]]
    list_files: Callable[[], Iterable[Path]]
    call: Callable[[], None]


def watch_ref(directory: Path, ref: str, call: Callable[[], None]) -> WatchedFiles:
    """The ref ``ref`` of the Git directory ``directory``, loose or packed; no other ref, and no object."""
    directory = directory.absolute()
    above = [directory, *(directory / parent for parent in Path(ref).parents if parent.name), directory / "reftable"]
    files = [directory / ref, directory / "packed-refs", directory / "reftable" / "tables.list"]
    return WatchedFiles(lambda: above, lambda: files, call)


def watch_file(file: Path, call: Callable[[], None]) -> WatchedFiles:
    """One file, and the file that it links to."""
    file = file.absolute()
    return WatchedFiles(lambda: [link.parent for link in _follow_links(file)], lambda: [file], call)


def watch_tree(directory: Path, call: Callable[[], None]) -> WatchedFiles:
    """All files below ``directory``, and the files that they link to."""
    directory = directory.absolute()
    return WatchedFiles(lambda: _list_directories(directory), lambda: _list_files(directory), call)


class _Pace:
    """The waits of a watch, as the stop event that watchfiles asks before each of its checks.

    watchfiles delivers a change when two checks in a row find the same. With its own waits between them, each change
    comes a step too late. So only every other check is preceded by a wait, and there is one wake-up a step.
    """

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped
        self._waits = False

    def is_set(self) -> bool:
        """Whether the watch ends."""
        self._waits = not self._waits
        if self._waits:
            time.sleep(STEP_SECONDS)
        return self._stopped.is_set()


class _Follower:
    """One ``WatchedFiles`` as it was seen last."""

    def __init__(self, watched: WatchedFiles) -> None:
        self.watched = watched
        self.directories: dict[_Identity, str] = {}
        self._times: dict[_Identity, int] = {}
        self._versions: dict[Path, _Version | None] = {}
        self.list_directories()
        self.find_change()

    def list_directories(self) -> bool:
        """List the directories again; return whether others exist than before."""
        former, self.directories, self._times = self.directories, {}, {}
        for path in self.watched.list_directories():
            with suppress(OSError, UnicodeEncodeError):
                status, name = path.stat(), str(path)
                name.encode()  # watchfiles takes no other name
                self._times[status.st_dev, status.st_ino] = status.st_mtime_ns
                if os.access(path, os.R_OK):  # one that cannot be watched would end the watch of the others
                    self.directories.setdefault((status.st_dev, status.st_ino), name)
        return self.directories.keys() != former.keys()

    def find_change(self) -> bool:
        """Read the versions of the files; return whether one is another than before."""
        former, self._versions = self._versions, {path: _read_version(path) for path in self.watched.list_files()}
        return self._versions != former

    def handle_events(self, paths: Set[str]) -> bool:
        """Return whether a file changed, after events of ``paths`` in a directory of it.

        An event of a file itself always counts: its version stays the same if it is written twice within a tick.
        """
        named = [path for path in self._versions if str(path) in paths]
        self._versions |= {path: _read_version(path) for path in named}
        # Who writes the same file again and again does not cost a look at all others each time.
        return bool(named) or self.find_change()

    def are_files(self, paths: Set[str]) -> bool:
        """Whether ``paths`` are files that are compared, so that their events are of no directory."""
        return paths <= {str(path) for path in self._versions}

    def recheck(self) -> bool:
        """Return whether a file changed without an event, as far as a cheap look shows it."""
        former = self._times
        are_others = self.list_directories()
        is_cheap = len(self._versions) <= _FEW_FILES
        return (is_cheap or are_others or self._times != former) and self.find_change()


class FileWatch:
    """Watches files in a thread of its own, from ``open`` to ``close``."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="file watch", daemon=True)
        self._has_failed = False
        self._followers: list[_Follower] = []

    async def open(self, watched: Sequence[WatchedFiles]) -> None:
        """Watch for changes from now on; their calls are made on this event loop."""
        self._loop = asyncio.get_running_loop()
        self._followers = await asyncio.to_thread(lambda: [_Follower(files) for files in watched])
        self._thread.start()

    def close(self) -> None:
        """Make no further call, and end the thread, which takes a step.

        An interpreter that ends while a thread is in Rust aborts.
        """
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        """Watch until ``close``. While the kernel permits no watch, or a bug ends it, files are compared instead."""
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._watch()
                continue
            except (OSError, WatchfilesRustInternalError) as error:
                self._report_failure(error)
            except Exception as error:  # noqa: BLE001 - the files are still compared
                internal_error(error, "watching files")
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause, self._has_failed = _FIRST_PAUSE, False
            self._compare_for(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _watch(self) -> None:
        """Watch the directories that exist, until others do. Raises OSError and WatchfilesRustInternalError."""
        directories = {
            identity: path for follower in self._followers for identity, path in follower.directories.items()
        }
        if not directories:
            self._compare_for(RECHECK_SECONDS)
            return
        identities = {path: identity for identity, path in directories.items()}
        recheck = int(RECHECK_SECONDS * 1000)
        try:
            # The last argument would ignore all errors, also a limit that is reached.
            kernel = RustNotify([*identities], False, False, recheck, False, False)
        except FileNotFoundError:  # it went meanwhile
            self._compare_for(STEP_SECONDS)
            return
        with kernel:
            pace, are_others = _Pace(self._stopped), False
            # What changed before the kernel watched it causes no event.
            self._compare(_Follower.find_change)
            while not are_others:
                events = kernel.watch(0, 0, recheck, pace)
                if events == "stop":
                    return
                if isinstance(events, set):
                    paths = {path for _, path in events}
                    folders = paths | {os.path.dirname(path) for path in paths}
                    are_others = self._handle_events(paths, {identities.get(folder) for folder in folders})
                else:
                    are_others = self._recheck()

    def _handle_events(self, paths: Set[str], changed: Set[_Identity | None]) -> bool:
        """Compare files in the directories ``changed``; return whether other directories exist than before."""
        concerned = [it for it in self._followers if not changed.isdisjoint(it.directories)]
        for follower in concerned:
            if follower.handle_events(paths):
                self._call(follower)
        others = [follower for follower in concerned if not follower.are_files(paths)]
        return sum(follower.list_directories() for follower in others) > 0  # every one, unlike any()

    def _recheck(self) -> bool:
        """Compare what can have changed without an event; return whether other directories exist than before."""
        before = [follower.directories.keys() for follower in self._followers]
        self._compare(_Follower.recheck)
        return before != [follower.directories.keys() for follower in self._followers]

    def _compare(self, find_change: Callable[[_Follower], bool]) -> None:
        for follower in self._followers:
            with contain_bugs("watching files"):
                if find_change(follower):
                    self._call(follower)

    def _compare_for(self, seconds: float) -> None:
        """Compare files at intervals for ``seconds``."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._stopped.wait(min(left, RECHECK_SECONDS)):
            self._recheck()

    def _call(self, follower: _Follower) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._deliver, follower.watched.call)

    def _deliver(self, call: Callable[[], None]) -> None:
        if not self._stopped.is_set():
            call()

    def _report_failure(self, error: Exception) -> None:
        if self._has_failed:
            return
        self._has_failed = True
        reason = str(error).partition(" about ")[0].rstrip(".")  # without the library's own form of paths
        log().warning(
            "watch_failed",
            message=f"the kernel watches no files ({reason}): they are compared every {RECHECK_SECONDS:g} s, and the "
            "watch is tried again; where a limit is reached, raise fs.inotify.max_user_instances or max_user_watches",
        )


def _read_version(path: Path) -> _Version | None:
    """The version of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return _Version(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _follow_links(file: Path) -> Iterator[Path]:
    """``file``, and what it links to."""
    for _ in range(40):  # as the kernel
        yield file
        try:
            file = file.parent / file.readlink()
        except OSError:  # it is no link
            return


def _list_directories(directory: Path) -> Iterator[Path]:
    for count, (folder, _, _) in enumerate(os.walk(directory)):
        if count >= _MOST_DIRECTORIES:
            return
        yield Path(folder)


def _list_files(directory: Path) -> Iterator[Path]:
    files = (Path(folder, name) for folder, _, names in os.walk(directory) for name in sorted(names))
    for _, file in zip(range(_MOST_FILES), files, strict=False):
        yield file
