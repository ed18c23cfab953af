"""The files of Debian 12 that machines and images of tests begin with, made once and kept outside of the tree."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.programs import tool

SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,git,ca-certificates,haproxy,procps"


def find_root() -> Path:
    """The root of a system with PACKAGES; only copies of it are changed. Skips where it cannot be made."""
    bootstrap = tool("debootstrap", "debootstrap")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = home / "reconciler-tests" / "debian" / f"{SUITE}-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:16]}"
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _make_root(bootstrap, root)
    return root


def _make_root(bootstrap: str, root: Path) -> None:
    unfinished = root.with_name(f"unfinished-{root.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    sites = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
    mirror = subprocess.run(sites, capture_output=True, text=True, check=True).stdout.split()[:1]
    command = [bootstrap, "--variant=minbase", f"--include={PACKAGES}", SUITE, str(unfinished), *mirror]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    unfinished.rename(root)
