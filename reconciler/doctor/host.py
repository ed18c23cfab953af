"""Checks of the host: programs, free disk space, and its clock."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from reconciler.checks import Check, make_ok_check, make_problem, make_warning
from reconciler.settings import Settings

OLDEST_GIT = (2, 29)
OLDEST_GIT_FOR_SIGNATURES = (2, 35)
LITTLE, SCARCE = 1_000_000_000, 100_000_000
"""Free bytes below which disk space is a warning, and a problem."""
FEW_FILES = 1_000
_OUT_OF_TIME = 5


def check_host(settings: Settings) -> Iterator[Check]:
    """Check programs, disks and the clock."""
    yield _check_git(settings)
    yield from _check_programs(settings)
    yield from _check_disks(settings)
    yield _check_clock()


def _check_git(settings: Settings) -> Check:
    try:
        output = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True, timeout=10.0).stdout
    except (OSError, subprocess.SubprocessError):
        return make_problem("git", "git cannot be run", "install git")
    match = re.search(r"(\d+)\.(\d+)", output)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    signed = any(source.verify is not None for source in settings.sources)
    oldest = OLDEST_GIT_FOR_SIGNATURES if signed else OLDEST_GIT
    if version < oldest:
        why = " to verify signatures" if signed else ""
        return make_problem("git", output.strip(), f"install git {oldest[0]}.{oldest[1]} or newer{why}")
    return make_ok_check("git", output.strip())


def _check_programs(settings: Settings) -> Iterator[Check]:
    programs: dict[str, str] = {}
    for source in settings.sources:
        if source.url.startswith("ssh://") or (not source.local and "://" not in source.url):
            programs["ssh"] = source.name
        if source.verify is not None and source.verify.allowed_signers is not None:
            programs["ssh-keygen"] = source.name
        if source.verify is not None and source.verify.gpg_keyring is not None:
            programs["gpg"] = source.name
    for program, name in programs.items():
        if shutil.which(program) is None:
            yield make_problem(program, f"source {name} needs {program}, which is not installed", f"install {program}")


def _check_disks(settings: Settings) -> Iterator[Check]:
    places = [settings.state, *(Path(source.url) for source in settings.sources if source.local)]
    seen: set[int] = set()
    for path in places:
        there = next(folder for folder in (path, *path.parents) if folder.exists())
        device = there.stat().st_dev
        if device not in seen:
            seen.add(device)
            yield _check_disk_space(there)


def _check_disk_space(path: Path) -> Check:
    statvfs_result = os.statvfs(path)
    free = statvfs_result.f_bavail * statvfs_result.f_frsize
    message = f"{free / 1e9:.1f} GB free at {path}"
    if free < SCARCE:
        return make_problem("disk", message, "make room: nothing can be recorded on a full disk")
    if statvfs_result.f_files and statvfs_result.f_favail < FEW_FILES:
        return make_problem("disk", f"only {statvfs_result.f_favail} more files fit at {path}", "delete files there")
    if free < LITTLE:
        return make_warning("disk", message, "make room before it is full")
    return make_ok_check("disk", message)


def _check_clock() -> Check:
    """Ask the kernel, which knows whether a service (chrony, timesyncd, ntpd, the hypervisor) sets its clock."""
    buffer = ctypes.create_string_buffer(512)  # a struct timex of zeros: read only
    state = ctypes.CDLL(None).adjtimex(buffer)
    if state == _OUT_OF_TIME:
        advice = "run a time service such as chrony; certificates, signatures and suspensions depend on the clock"
        return make_warning("clock", "the clock of this host is not synchronized", advice)
    return make_ok_check(
        "clock", "kept in time" if state >= 0 else "the kernel does not report whether the clock is synchronized"
    )
