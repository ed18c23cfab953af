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
FOR_READERS = f"{PACKAGES},curl,openssl,openssh-client,libpam-systemd,dbus-user-session"
"""What the pages use, too."""
FOR_IMAGES = (
    f"{FOR_READERS},podman,runc,netavark,aardvark-dns,iptables,nftables,catatonit,uidmap,slirp4netns,fuse-overlayfs"
)
"""And what Podman needs, for root and for other users."""


def find_root(packages: str = PACKAGES) -> Path:
    """The root of a system with ``packages``; only copies of it are changed. Skips where it cannot be made."""
    bootstrap = tool("debootstrap", "debootstrap")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = home / "reconciler-tests" / "debian" / f"{SUITE}-{hashlib.sha256(packages.encode()).hexdigest()[:16]}"
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _make_root(bootstrap, root, packages)
    return root


def _make_root(bootstrap: str, root: Path, packages: str) -> None:
    unfinished = root.with_name(f"unfinished-{root.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    sites = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
    mirror = subprocess.run(sites, capture_output=True, text=True, check=True).stdout.split()[:1]
    command = [bootstrap, "--variant=minbase", f"--include={packages}", SUITE, str(unfinished), *mirror]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    unfinished.rename(root)
