"""The machine that a service is installed on: this one, or one whose files are below a directory, as for systemctl."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reconciler.errors import RefusedError, UsageError

UNIT = "reconciler.service"
USER = UNIT.removesuffix(".service")
"""The user and the group of the service."""
PROGRAM = "/usr/bin/reconciler"
"""The command that the shipped unit starts."""
SETTINGS = Path("etc/reconciler/settings.yaml")
STATE = Path("var/lib/reconciler")
UNITS = Path("etc/systemd/system")
DROP_IN = UNITS / f"{UNIT}.d" / "install.conf"
SYSUSERS = Path("etc/sysusers.d/reconciler.conf")
_PACKAGED = (Path("usr/lib/systemd/system") / UNIT, Path("lib/systemd/system") / UNIT)
"""Where the unit of a package is."""
_WANTED = UNITS / "multi-user.target.wants" / UNIT
_RUNNING = Path("run/systemd/system")
"""Exists where systemd is the first process."""


class Account(NamedTuple):
    """The ids of a user and of its group."""

    uid: int
    gid: int


class Machine(NamedTuple):
    """The files below ``root``, which is `/` for this machine."""

    root: Path

    @property
    def is_this(self) -> bool:
        """Whether it is the machine that this program runs on."""
        return self.root == Path("/")

    @property
    def has_systemd(self) -> bool:
        """Whether units can be started: systemd runs, and this machine is meant."""
        return self.is_this and (self.root / _RUNNING).is_dir()

    @property
    def is_packaged(self) -> bool:
        """Whether a package brought the units and the user."""
        return any((self.root / path).exists() for path in _PACKAGED)

    @property
    def is_enabled(self) -> bool:
        """Whether the service starts when the machine does."""
        return os.path.lexists(self.root / _WANTED)

    @property
    def is_active(self) -> bool:
        """Whether the service runs."""
        words = ["systemctl", "is-active", "--quiet", UNIT]
        return self.has_systemd and subprocess.run(words, check=False).returncode == 0

    def check_rights(self) -> None:
        """Raise UsageError unless root runs this, for only root may make users and units."""
        if os.geteuid() != 0:
            raise UsageError("only root may install a service: run it with sudo; to run a directory without: up")

    def find_account(self) -> Account | None:
        """The account of the service; None where there is none."""
        try:
            lines = (self.root / "etc/passwd").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        entries = [line.split(":") for line in lines if line.startswith(f"{USER}:")]
        return Account(int(entries[0][2]), int(entries[0][3])) if entries else None

    def find_program(self) -> str:
        """The path of the command `reconciler` on that machine."""
        if (self.root / PROGRAM.lstrip("/")).exists():
            return PROGRAM
        beside = Path(sys.executable).with_name("reconciler")
        return str(beside) if beside.exists() else shutil.which("reconciler") or PROGRAM

    def call_systemctl(self, *words: str) -> None:
        """Run systemctl for that machine. Raises RefusedError with its message."""
        where = [] if self.is_this else [f"--root={self.root}"]
        self.run_program(["systemctl", *where, *words])

    def run_program(self, words: Sequence[str]) -> None:
        """Run a program of this machine. Raises RefusedError with its message, UsageError where it is missing."""
        try:
            ran = subprocess.run(words, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise UsageError(f"{words[0]} is not installed, so there is no systemd here: reconciler run") from None
        if ran.returncode:
            raise RefusedError(f"{' '.join(words)}: {(ran.stderr or ran.stdout).strip()}")

    def show_path(self, path: Path) -> str:
        """``path`` as people find it from here."""
        return str(self.root / path)


def read_root(root: Path | None) -> Machine:
    """The machine whose files are below ``root``, this one where it is None. Raises UsageError where it is missing."""
    if root is not None and not root.is_dir():
        raise UsageError(f"--root {root}: there is no such directory")
    return Machine((root or Path("/")).resolve())
