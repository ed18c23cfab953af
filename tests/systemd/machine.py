"""A Debian system with systemd as its first process, in a container."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.project.tree import ROOT
from tests.support.programs import skip_unless, tool
from tests.support.sandbox import eventually
from tests.support.trust import machine_environ
from tests.systemd.debian_root import FOR_IMAGES, PACKAGES, find_root

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

ENVIRON = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
"""Of commands in a machine: the variables of tests name files that it does not have."""


class Machine:
    """One that runs: ``leader`` is its first process, ``root`` its directory."""

    def __init__(self, root: Path, leader: int) -> None:
        self.root = root
        self.leader = leader

    def run(self, *command: str, check: bool = True) -> str:
        """What a command in it writes."""
        done = self.attempt(*command)
        assert done.returncode == 0 or not check, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def attempt(self, *command: str, patience: float = 120.0) -> subprocess.CompletedProcess[str]:
        """How a command in it ends, within ``patience`` seconds."""
        inside = ["nsenter", "--target", str(self.leader), "--all", "--", *command]
        return subprocess.run(inside, env=ENVIRON, capture_output=True, text=True, timeout=patience, check=False)

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


def install_tree(root: Path) -> None:
    """Put the reconciler of this tree, its units and its user there, as docs/install.md does it by hand."""
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
    (root / "etc/sysusers.d").mkdir(exist_ok=True)
    shutil.copy(ROOT / "systemd/reconciler.sysusers.conf", root / "etc/sysusers.d/reconciler.conf")
    (root / "etc/reconciler").mkdir(exist_ok=True)


CONTAINERS = ("--capability=all", "--system-call-filter=@keyring bpf", "--bind=/dev/fuse")
"""Options of systemd-nspawn for a machine in which Podman runs containers."""
BELOW_SYS = ("sys-kernel-debug.mount", "sys-kernel-tracing.mount")
"""Units of mounts that keep Podman from making the network of a container."""
OPEN_CGROUPS = """\
mount -o remount,rw /sys/fs/cgroup
sed -n 's|^cgroup2* \\(/sys/fs/cgroup/[^ ]*\\) .*|\\1|p' /proc/mounts |
xargs --no-run-if-empty -n1 mount -o remount,bind,rw
"""
"""Lets containers have control groups in the hierarchies of version 1, too."""


@contextlib.contextmanager
def machine(path: Path, install: Callable[[Path], None] = install_tree, packages: str = PACKAGES) -> Iterator[Machine]:
    """A machine below ``path`` with what ``install`` puts into its root, up and running; powered off at the end.

    It has the Debian ``packages``.
    """
    root = path / "root"
    subprocess.run(["cp", "-a", "--reflink=auto", find_root(packages), root], check=True)
    # The package of HAProxy starts one of its own.
    (root / "etc/systemd/system/haproxy.service").symlink_to("/dev/null")
    (root / "etc/machine-id").write_text("")
    for unit in BELOW_SYS if packages == FOR_IMAGES else ():
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    install(root)
    command = [tool("systemd-nspawn", "systemd-container"), "--quiet", f"--directory={root}", "--register=no"]
    # A network of its own, without a way out: no port is taken, and nothing is downloaded.
    command.append("--private-network")
    writable = {"SYSTEMD_NSPAWN_API_VFS_WRITABLE": "yes"} if packages == FOR_IMAGES else {}
    command += CONTAINERS if packages == FOR_IMAGES else ()
    with (path / "console").open("wb") as console:
        booted = subprocess.Popen(
            [*command, "--keep-unit", "--boot"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            env={**os.environ, **writable},
        )
    try:
        booted_machine = Machine(root, eventually(lambda: _leader(booted.pid), "systemd begins", 60.0))
        eventually(
            lambda: booted_machine.run("systemctl", "is-system-running", check=False).strip() == "running",
            "it runs",
            120.0,
        )
        if packages == FOR_IMAGES:
            booted_machine.run("sh", "-c", OPEN_CGROUPS)
        yield booted_machine
    finally:
        booted.terminate()
        try:
            booted.wait(60)
        except subprocess.TimeoutExpired:
            booted.kill()
            booted.wait()


def _leader(pid: int) -> int:
    """The first process of the machine; 0 while it is not systemd yet."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                return int(child)
    return 0


NEEDS_MACHINE = skip_unless(
    sys.version_info[:2] == (3, 11) and os.geteuid() == 0, "root and Python 3.11 are needed to boot the machine"
)
"""The mark of a test on a machine, where what pip installs here runs, too: Debian 12 has Python 3.11."""
