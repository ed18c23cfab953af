"""What tests need of the machine: programs that pip cannot install, other users, small disks."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.ports import can_bind_port

OWNER = 12_345
"""A user who is not root."""


def skip_unless(met: bool, reason: str) -> pytest.MarkDecorator:
    """Skips a test where this machine lacks what it needs; in CI it runs, and fails, on every machine."""
    return pytest.mark.skipif(not met and not os.environ.get("CI"), reason=reason)


def only_root(reason: str) -> pytest.MarkDecorator:
    """Skips a test for all users but root; in CI it runs, and fails, for every user."""
    return skip_unless(os.geteuid() == 0, reason)


def open_way(path: Path) -> None:
    """Let other users pass through ``path`` and the directories above it that are ours, as replicas have to."""
    for folder in (path, *path.parents):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o111)


def path_without(program: str, folder: Path) -> str:
    """A PATH that has all programs of this host but one, as links in ``folder``."""
    folder.mkdir(exist_ok=True)
    for directory in os.environ["PATH"].split(":"):
        for file in Path(directory).glob("*"):
            if file.name != program and not (folder / file.name).is_symlink():
                (folder / file.name).symlink_to(file)
    return str(folder)


@contextlib.contextmanager
def small_disk(path: Path, options: str) -> Iterator[Path]:
    """A file system of its own at ``path``, bounded by ``options`` of tmpfs: ``size=40m``, ``nr_inodes=100``.

    Where this user may not mount one the test skips; in CI it fails.
    """
    path.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        missing = f"a small disk needs the right to mount: {done.stderr.strip()}"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path) -> Path:
    """A file that takes all the room there is on ``disk``."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        while file.write(b"x" * 65536):
            pass
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        while file.write(b"x" * 512):
            pass
    return filler


def find_common_python() -> str:
    """A Python of this version that every user may run: this one, or where it is in a home, that of the system.

    Without one the test skips; in CI it fails.
    """
    version = f"python3.{sys.version_info.minor}"
    for path in (Path(sys.executable).resolve(), Path("/usr/bin") / version):
        if path.exists() and all(folder.stat().st_mode & 0o001 for folder in path.parents):
            return str(path)
    missing = f"no {version} is where every user may run it"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def tool(name: str, package: str) -> str:
    """Path of the program ``name``. Without it the test skips and names the Debian package; in CI it fails."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found:
        return found
    missing = f"{name} is not installed: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def adjacent_ports(count: int) -> int:
    """The first of ``count`` ports in a row that are free now, below all that replicas and clients get by default."""
    start = 10_000 + os.getpid() % 9_000
    for first in (*range(start, 19_000, count), *range(10_000, start, count)):
        if all(can_bind_port(port) for port in range(first, first + count)):
            return first
    pytest.fail(f"no {count} ports in a row are free")


def give_away(*places: Path) -> None:
    """Let all at ``places`` belong to the owner."""
    for place in places:
        for path in (place, *place.rglob("*")):
            os.chown(path, OWNER, OWNER, follow_symlinks=False)
