"""Programs that tests drive and pip cannot install."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def only_root(reason: str) -> pytest.MarkDecorator:
    """Skips a test for anybody but root; in CI it runs, and fails, whoever runs it."""
    return pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason=reason)


@contextlib.contextmanager
def small_disk(path: Path, options: str) -> Iterator[Path]:
    """A file system of its own at ``path``, bounded by ``options`` of tmpfs: ``size=40m``, ``nr_inodes=100``."""
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
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


def tool(name: str, package: str) -> str:
    """Path of the program ``name``. Without it the test skips and names the Debian package; in CI it fails."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found:
        return found
    missing = f"{name} is not installed: apt-get install {package}"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
