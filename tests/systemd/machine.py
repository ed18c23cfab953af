"""A Debian system with systemd as its first process, in a container, with what docs/install.md installs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.project.tree import ROOT
from tests.support.programs import tool
from tests.support.sandbox import eventually
from tests.support.trust import machine_environ

BASE = ROOT / "build" / "systemd" / "bookworm"
"""The system as it is installed, made once; each machine is a copy."""
PACKAGES = "systemd,systemd-sysv,dbus,python3,git,ca-certificates,haproxy,procps"
UNITS = (
    "reconciler.service",
    "reconciler-replicas.service",
    "reconciler-haproxy@.service",
    "reconciler-haproxy@.path",
)
LIBRARY = Path("opt/reconciler")
PROGRAM = f"""#!/usr/bin/python3
import sys
sys.path.insert(0, "/{LIBRARY}")
from reconciler.cli import main
sys.exit(main())
"""


class Machine:
    """One that runs: ``leader`` is its first process, ``root`` its directory."""

    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self.leader = leader

    def run(self, *command: str, check: bool = True) -> str:
        """What a command in it writes."""
        inside = ["nsenter", "--target", str(self.leader), "--all", "--", *command]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0 or not check, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", unit, "--property", name, "--value").strip()

    def journal(self, unit: str, since: str = "") -> str:
        """The messages of systemd and the unit after the cursor ``since``."""
        after = [f"--after-cursor={since}"] if since else []
        return self.run("journalctl", "--unit", unit, "--no-pager", "--output", "cat", *after)

    def cursor(self) -> str:
        """Where the journal ends now."""
        return self.run("journalctl", "--lines", "0", "--show-cursor").rpartition("-- cursor: ")[2].strip()


@contextlib.contextmanager
def machine(path: Path) -> Iterator[Machine]:
    """A machine below ``path``, up and running; powered off at the end."""
    root = path / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", _base(), root], check=True)
    _install(root)
    command = [tool("systemd-nspawn", "systemd-container"), "--quiet", f"--directory={root}", "--register=no"]
    with (path / "console").open("wb") as console:
        booted = subprocess.Popen(
            [*command, "--keep-unit", "--boot"], stdin=subprocess.DEVNULL, stdout=console, stderr=console
        )
    try:
        booted_machine = Machine(root, eventually(lambda: _leader(booted.pid), "systemd begins", 60.0))
        eventually(
            lambda: booted_machine.run("systemctl", "is-system-running", check=False).strip() == "running",
            "it runs",
            120.0,
        )
        yield booted_machine
    finally:
        booted.terminate()
        try:
            booted.wait(30)
        except subprocess.TimeoutExpired:
            booted.kill()
            booted.wait()


def _base() -> Path:
    if not (BASE / "complete").exists():
        bootstrap = tool("debootstrap", "debootstrap")
        shutil.rmtree(BASE, ignore_errors=True)
        BASE.parent.mkdir(parents=True, exist_ok=True)
        sites = ["apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages"]
        mirror = subprocess.run(sites, capture_output=True, text=True, check=True).stdout.split()[:1]
        command = [bootstrap, "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(BASE), *mirror]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        (BASE / "complete").touch()
    return BASE


def _install(root: Path) -> None:
    """Put the reconciler, its units and its user there."""
    quiet = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    subprocess.run(
        [*quiet, "--target", str(root / LIBRARY), str(ROOT)],
        env=machine_environ(),
        check=True,
        stderr=subprocess.DEVNULL,
    )
    program = root / "usr/bin/reconciler"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    for name in UNITS:
        shutil.copy(ROOT / "systemd" / name, root / "etc/systemd/system")
    # The package of HAProxy starts one of its own.
    (root / "etc/systemd/system/haproxy.service").symlink_to("/dev/null")
    (root / "etc/sysusers.d").mkdir(exist_ok=True)
    shutil.copy(ROOT / "systemd/reconciler.sysusers.conf", root / "etc/sysusers.d/reconciler.conf")
    (root / "etc/reconciler").mkdir(exist_ok=True)
    (root / "etc/machine-id").write_text("")


def _leader(pid: int) -> int:
    """The first process of the machine; 0 while it is not systemd yet."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
    return 0


def python_of_the_machine() -> bool:
    """Whether what pip installs here runs there too: Debian 12 has Python 3.11."""
    return sys.version_info[:2] == (3, 11) and os.geteuid() == 0
