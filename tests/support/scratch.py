"""Runs pytest with temporary files in memory: `python -m tests.support.scratch ARGUMENT ...`.

Tests make some 50,000 small files and sync many of them. In memory that takes a sixth less CPU time, and no test waits
for the disk. The files stay where a test fails, and go when the next run begins.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

MEMORY = Path("/dev/shm")
NAME = "rt"
"""Begins the name of a directory, before the process that made it: short, for paths of sockets."""
OWN_MOUNTS = ("unshare", "--mount", "--propagation", "slave")
"""Runs a command in a mount namespace of its own, which keeps no volume that another test unmounts."""
GIB = 1 << 30
FILES = 4 * GIB
"""Bytes that temporary files may take; those of all tests take a third of it."""
PROCESSES = 3 * GIB
"""Bytes that stay for processes."""


def place(memory: Path = MEMORY, needed: int = FILES + PROCESSES) -> Path | None:
    """A new directory in ``memory``; None where TMPDIR is set, or there is no room for ``needed`` bytes."""
    if "TMPDIR" in os.environ or not memory.is_dir() or not os.access(memory, os.W_OK):
        return None
    remove_former(memory)
    if shutil.disk_usage(memory).free < min(needed, FILES) or _available() < needed:
        return None
    path = memory / f"{NAME}{os.getpid()}"
    path.mkdir()
    share_mounts(path)
    path.chmod(0o1777)  # tests become other users, as in /tmp
    return path


def share_mounts(folder: Path) -> None:
    """Let what is unmounted in ``folder`` be unmounted in all other mount namespaces too, if this is root.

    systemd shares the root of a machine, so people have it so. In a container it is not shared: there each namespace
    that begins keeps a copy of the volumes of other tests, which cannot be unmounted for as long as it lasts. A file
    system of its own also takes all files with it when it is unmounted: to remove 60,000 one by one takes seconds.
    """
    if os.geteuid() == 0:
        for options in (["-t", "tmpfs", "tmpfs", folder], ["--make-shared", folder]):
            subprocess.run(["mount", *options], check=False, capture_output=True)


def remove(folder: Path) -> None:
    """Unmount ``folder`` and what is mounted in it, and remove it."""
    if os.geteuid() == 0:
        subprocess.run(["umount", "--recursive", "--lazy", folder], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def own_place(folder: Path) -> Path:
    """A path in ``folder`` for the temporary files of this process alone.

    Whenever pytest begins, it closes the directory that all its processes share to other users, and workloads of tests
    have other users.
    """
    remove_former(folder)
    return folder / f"{NAME}{os.getpid()}"


def remove_former(folder: Path) -> None:
    """Remove what ended processes left in ``folder``."""
    for former in folder.glob(f"{NAME}[0-9]*"):
        if not Path(f"/proc/{former.name.removeprefix(NAME)}").exists():
            remove(former)


def _available() -> int:
    """Bytes that programs could get from the kernel."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) * 1024


def main(*arguments: str) -> int:
    """Run pytest and return its exit code."""
    command = [sys.executable, "-m", "pytest", *arguments]
    path = place()
    if path is None:
        return subprocess.run(command, check=False).returncode
    command.append(f"--basetemp={path}/t")  # paths of sockets are at most 107 bytes long
    code = 1
    try:
        with contextlib.suppress(KeyboardInterrupt):
            code = subprocess.run(command, env={**os.environ, "TMPDIR": str(path)}, check=False).returncode
    finally:
        if code == 0:
            remove(path)
        else:
            print(f"temporary files: {path}, until the next run")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
