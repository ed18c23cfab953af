"""Stops all writes to a mounted file system for a moment."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.engines.host.volumes import kernel
from reconciler.engines.host.volumes.programs import find_program, start_program
from reconciler.errors import EngineError
from reconciler.reasons import Reason

LIMIT = 1.0
"""Seconds for which programs may be unable to write, without the setting `host.freezeLimit`."""
THAW = 0.2
"""The share of them that is left for the thaw, which a busy host delays."""

_SCRIPT = """
trap '' PIPE
fsfreeze --freeze "$0" 2>/dev/null || { sleep 0.2; fsfreeze --freeze "$0" || exit 1; }
echo 2>/dev/null
timeout "$1" cat >/dev/null
ended=$?
fsfreeze --unfreeze "$0"
exit $ended
"""
"""It thaws when its input ends, which the end of the daemon causes too, and after the limit whatever happens.

The second attempt to freeze is for the freeze of a killed daemon, which ends in a moment. The directory is open: its
path could become one of the host, and a file system that is frozen must not be unmounted, or it never thaws.
"""


@contextmanager
def freeze_file_system(path: Path, device: int, limit: float) -> Iterator[float]:
    """Freeze the file system of ``device`` that is mounted at ``path``.

    The value is the deadline, of the monotonic clock: ``limit`` seconds after the freeze began.

    Raises EngineError if it cannot be frozen, or did not stay frozen to the end.
    """
    if find_program("fsfreeze") is None:
        raise EngineError("the program fsfreeze is not installed", reason=Reason.VOLUME_UNAVAILABLE)
    deadline = time.monotonic() + limit
    with _open_mounted_directory(path, device) as folder, _start_freezer(folder, limit) as program:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stderr is not None
        try:
            ready = program.stdout.readline()
            if ready:
                yield deadline
        finally:
            kernel.thaw_opened(folder)  # at once: the program does so too, when it gets a turn
            program.stdin.close()
            errors = program.stderr.read().decode(errors="replace").strip()
            code = program.wait()
    if not ready:
        raise EngineError(f"{path} cannot be frozen: {errors}", reason=Reason.ENGINE_FAILED)
    if code:
        raise freeze_timeout(path)


@contextmanager
def _open_mounted_directory(path: Path, device: int) -> Iterator[int]:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.fstat(folder).st_dev != device:
            raise EngineError(f"{path} is no longer mounted", reason=Reason.VOLUME_UNAVAILABLE)
        yield folder
    finally:
        os.close(folder)


def _start_freezer(folder: int, limit: float) -> subprocess.Popen[bytes]:
    command = ("sh", "-c", _SCRIPT, f"/proc/self/fd/{folder}", str(limit))
    return start_program(command, inherited=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def freeze_timeout(path: Path) -> EngineError:
    """The error for a copy that is not complete when writes must go on."""
    return EngineError(
        f"{path} cannot be copied within the time for which its replica may be unable to write (host.freezeLimit): "
        "its replica has to stop for the snapshot; on a disk with XFS or btrfs, where files share blocks, it would not",
        reason=Reason.FREEZE_TIMEOUT,
    )
