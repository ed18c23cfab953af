"""Finds who else uses a mounted volume: programs that do not end with its replica, and would hold its mount."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.runtimes import procfs

_MARK = b"RECONCILER_CONTAINER="
_TERMINAL = 4
"""The place of the controlling terminal behind the name in /proc/PID/stat."""


def find_other_users(mount: Path, own: Collection[int]) -> list[str]:
    """The processes that use the file system at ``mount``, such as ``bash (process 12)``; blocks.

    Those of replicas are left out: ``own``, marked ones, and what may be a child that left them, which has the control
    group of the daemon and no terminal. A process in a mount namespace of its own is a container's.
    """
    device, namespace, group = os.stat(mount).st_dev, _read_mount_namespace("self"), _read_control_group("self")
    users = []
    for pid in sorted(procfs.list_pids() - set(own)):
        if _read_mount_namespace(str(pid)) != namespace or not any(
            number == device for number in _list_open_devices(pid)
        ):
            continue
        marked = _MARK in (procfs.read_environment(pid) or b"")
        if not marked and (_read_control_group(str(pid)) != group or _has_terminal(pid)):
            users.append(f"{_read_program_name(pid)} (process {pid})")
    return users


def _list_open_devices(pid: int) -> Iterator[int]:
    """The devices of the directories and files that a process has open."""
    top = f"/proc/{pid}"
    names = ["cwd", "root"]
    with suppress(OSError):
        names += [f"fd/{name}" for name in os.listdir(f"{top}/fd")]
    for name in names:
        with suppress(OSError):
            yield os.stat(f"{top}/{name}").st_dev


def _read_mount_namespace(pid: str) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/mnt")
    return ""


def _read_control_group(pid: str) -> bytes:
    with suppress(OSError):
        return procfs.read_kernel_file(f"/proc/{pid}/cgroup")
    return b""


def _has_terminal(pid: int) -> bool:
    with suppress(OSError):
        stat = procfs.read_kernel_file(f"/proc/{pid}/stat")
        return stat[stat.rindex(b")") + 2 :].split()[_TERMINAL] != b"0"
    return False


def _read_program_name(pid: int) -> str:
    with suppress(OSError):
        return procfs.read_kernel_file(f"/proc/{pid}/comm").decode(errors="replace").strip()
    return "a program"
