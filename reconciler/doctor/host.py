"""Checks of the host: programs, free disk space, and its clock."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from reconciler.checks import Check, fine, problem, warning
from reconciler.settings import Settings

OLDEST_GIT = (2, 29)
OLDEST_GIT_FOR_SIGNATURES = (2, 35)
LITTLE, SCARCE = 1_000_000_000, 100_000_000
"""Free bytes below which disk space is a warning, and a problem."""
FEW_FILES = 1_000
_OUT_OF_TIME = 5


def check_host(settings: Settings) -> Iterator[Check]:
    """Check programs, disks and the clock."""
    yield _git(settings)
    yield from _programs(settings)
    yield from _disks(settings)
    yield _clock()


def _git(settings: Settings) -> Check:
    try:
        output = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True, timeout=10.0).stdout
    except (OSError, subprocess.SubprocessError):
        return problem("git", "git cannot be run", "install git")
    found = re.search(r"(\d+)\.(\d+)", output)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    signed = any(source.verify is not None for source in settings.sources)
    oldest = OLDEST_GIT_FOR_SIGNATURES if signed else OLDEST_GIT
    if version < oldest:
        why = " to verify signatures" if signed else ""
        return problem("git", output.strip(), f"install git {oldest[0]}.{oldest[1]} or newer{why}")
    return fine("git", output.strip())


def _programs(settings: Settings) -> Iterator[Check]:
    wanted: dict[str, str] = {}
    for source in settings.sources:
        if source.url.startswith("ssh://") or (not source.local and "://" not in source.url):
            wanted["ssh"] = source.name
        if source.verify is not None and source.verify.allowed_signers is not None:
            wanted["ssh-keygen"] = source.name
        if source.verify is not None and source.verify.gpg_keyring is not None:
            wanted["gpg"] = source.name
    for program, name in wanted.items():
        if shutil.which(program) is None:
            yield problem(program, f"source {name} needs {program}, which is not installed", f"install {program}")


def _disks(settings: Settings) -> Iterator[Check]:
    places = [settings.state, *(Path(source.url) for source in settings.sources if source.local)]
    seen: set[int] = set()
    for place in places:
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        device = there.stat().st_dev
        if device not in seen:
            seen.add(device)
            yield _room(there)


def _room(place: Path) -> Check:
    found = os.statvfs(place)
    free = found.f_bavail * found.f_frsize
    message = f"{free / 1e9:.1f} GB free at {place}"
    if free < SCARCE:
        return problem("disk", message, "make room: nothing can be recorded on a full disk")
    if found.f_files and found.f_favail < FEW_FILES:
        return problem("disk", f"only {found.f_favail} more files fit at {place}", "delete files there")
    if free < LITTLE:
        return warning("disk", message, "make room before it is full")
    return fine("disk", message)


def _clock() -> Check:
    """Ask the kernel, which knows whether a service (chrony, timesyncd, ntpd, the hypervisor) sets its clock."""
    buffer = ctypes.create_string_buffer(512)  # a struct timex of zeros: read only
    state = ctypes.CDLL(None).adjtimex(buffer)
    if state == _OUT_OF_TIME:
        advice = "run a time service such as chrony; certificates, signatures and suspensions depend on the clock"
        return warning("clock", "the clock of this host is not synchronized", advice)
    return fine(
        "clock", "kept in time" if state >= 0 else "the kernel does not report whether the clock is synchronized"
    )
