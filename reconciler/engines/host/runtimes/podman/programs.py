"""Programs of this host that root uses in addition to Podman: the OCI runtime below it, and nft."""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.engines.host.runtimes.podman.api.words import read_log_message
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.reasons import Reason

if TYPE_CHECKING:
    from reconciler.engines.host.runtimes.podman.capabilities import Capabilities

NOT_FOUND, NOT_PERMITTED, FAILED = 127, 126, 255
LACKING = frozenset({NOT_FOUND, NOT_PERMITTED})
"""Exit codes of programs that a container does not have, or may not run."""
NAMESPACES = Path("/run/netns")
"""Where Podman of root has the network namespaces of containers."""
INTERFACES = Path("/sys/class/net")
# How the kernel shows an address of a network namespace in its fib_trie.
_ADDRESS = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL")
PLAIN_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""What the OCI runtime itself gets; a program gets the environment of its container."""
_MISSING = ("executable file not found", "no such file or directory", "not found in $PATH")
_DENIED = ("permission denied", "is a directory")
_RULES = (
    "add table inet reconciler; add chain inet reconciler {hook} "
    "{{ type filter hook {hook} priority 0; policy accept; }}; flush chain inet reconciler {hook}; "
    "add rule inet reconciler {hook} meta skuid {user} drop"
)
_NFT_SECONDS = 10.0
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_OF_NAMESPACE = Path("/proc/sys/user/max_inotify_instances")
_INSTANCES = 128
"""The inotify instances that a user has by default."""
_DYING_SECONDS = 2.0
_FOLDERS = "reconciler-exec-"
_FOLDER = re.compile(rf"{_FOLDERS}(?:(\d+)-)?.+")
_OLD_SECONDS = 3600.0


def make_folder() -> Path:
    """A new temporary directory for one program, with the number of this process in its name. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid()}-"))


def remove_old_folders() -> None:
    """Remove directories of ``make_folder`` that killed processes of this user left an hour ago or earlier. Blocks."""
    for path in list_paths(Path(tempfile.gettempdir()), f"{_FOLDERS}*"):
        match = _FOLDER.fullmatch(path.name)
        with suppress(OSError):
            # Anybody can make such names in a directory for temporary files, and links too.
            stat_result = path.lstat()
            own = stat.S_ISDIR(stat_result.st_mode) and stat_result.st_uid == os.geteuid()
            alive = match is not None and match[1] and Path("/proc", match[1]).exists()
            if own and not alive and stat_result.st_mtime < time.time() - _OLD_SECONDS:
                shutil.rmtree(path)


def oci_command(capabilities: Capabilities) -> tuple[str, ...]:
    """The beginning of each command; empty if the daemon cannot use the OCI runtime."""
    return (capabilities.runtime_path, "--root", capabilities.runtime_root) if capabilities.direct else ()


def exit_code(code: int, output: str, *, started: bool) -> int:
    """The exit code of a program; those that never started have the codes that a shell gives them."""
    if started or code == 0:
        # A negative code is the signal that ended the program; a shell adds it to 128.
        return code if code >= 0 else 128 - code
    if any(text in output for text in _MISSING):
        return NOT_FOUND
    if any(text in output for text in _DENIED):
        return NOT_PERMITTED
    why = " ".join(read_log_message(output).split())[:300]
    raise EngineError(f"a program cannot be run: {why}", reason=Reason.EXEC_FAILED)


def number_in(pid_file: Path) -> int:
    """The process number in a file; 0 before it is written."""
    try:
        text = pid_file.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def can_restrict() -> bool:
    """Whether this host has the programs that ``drop_packets`` uses."""
    return os.geteuid() == 0 and all(find_tool(name) for name in ("nft", "nsenter"))


def drop_packets(pid: int, user: int) -> None:
    """Drop what ``user`` sends in the network namespace of ``pid``; answers count too. Raises EngineError. Blocks."""
    nft, nsenter = find_tool("nft"), find_tool("nsenter")
    if nft is None or nsenter is None:
        raise EngineError(f"user {user} cannot be kept off the network: install nftables", reason=Reason.LIMITS_FAILED)
    command = [nsenter, f"--net=/proc/{pid}/ns/net", nft, _RULES.format(hook="output", user=user)]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_NFT_SECONDS, stdin=subprocess.DEVNULL, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"nft cannot be run: {error}", reason=Reason.LIMITS_FAILED) from None
    if done.returncode:
        message = f"user {user} cannot be kept off the network: {' '.join(done.stderr.split())[:300]}"
        raise EngineError(message, reason=Reason.LIMITS_FAILED)


def limit_inotify(pid: int) -> None:
    """Let no user in the user namespace of ``pid`` take more than half of the inotify instances of root. Blocks.

    The kernel counts those of all users in namespaces for root too, whose programs could get none otherwise.
    """
    nsenter = find_tool("nsenter")
    with suppress(OSError, subprocess.SubprocessError):
        limit = number_in(_INOTIFY) // 2
        if nsenter is not None and limit:
            script = f"echo {min(limit, _INSTANCES)} > {_INOTIFY_OF_NAMESPACE}"
            _run_command([nsenter, f"--user=/proc/{pid}/ns/user", "sh", "-c", script])


def run_nft(lines: Collection[str], failure: str) -> None:
    """Carry out all of ``lines``, or none. Raises EngineError, whose message begins with ``failure``. Blocks."""
    command, text = [find_tool("nft") or "nft", "-f", "-"], "\n".join([*lines, ""])
    try:
        done = subprocess.run(command, input=text, capture_output=True, check=False, timeout=_NFT_SECONDS, text=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"nft cannot be run: {error}", reason=Reason.RUNTIME_FAILED) from None
    if done.returncode:
        raise EngineError(f"{failure}: {' '.join(done.stderr.split())[:300]}", reason=Reason.RUNTIME_FAILED)


def find_tool(name: str) -> str | None:
    """The path of a program of this host's administrator; None if it is not installed."""
    return shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")


def lost_namespaces(subnets: Collection[str]) -> set[Path]:
    """Network namespaces with an address in ``subnets`` that no process of this host is in. Blocks.

    A service that is killed while it starts a container forgets its namespace, and so it keeps the network. One that
    is new has no process for a moment, and another Podman may use the same addresses.
    """
    networks = [ipaddress.ip_network(subnet, strict=False) for subnet in subnets]
    candidates = list(list_paths(NAMESPACES, "netns-*")) if networks else []
    used = _namespaces_in_use() if candidates else set()
    namespaces = set()
    for path in candidates:
        with suppress(OSError, subprocess.TimeoutExpired):
            if path.stat().st_ino not in used and any(a in n for a in _list_routed_addresses(path) for n in networks):
                namespaces.add(path)
    return namespaces


def _namespaces_in_use() -> set[int]:
    used = set()
    for process in list_paths(Path("/proc"), "[0-9]*"):
        with suppress(OSError):
            used.add((process / "ns" / "net").stat().st_ino)
    return used


def remove_namespace(path: Path) -> None:
    """Remove a network namespace that no process is in, with its interfaces. Blocks."""
    umount = find_tool("umount")
    if umount is not None:
        with suppress(OSError, subprocess.TimeoutExpired):
            _run_command([umount, "--lazy", str(path)])
            path.unlink()


def remove_bridge(name: str) -> None:
    """Remove the bridge of a deleted network, unless anything is connected to it. Blocks.

    Podman removes it together with the last container that it has not forgotten.
    """
    ip, ports = find_tool("ip"), INTERFACES / name / "brif"
    deadline = time.monotonic() + _DYING_SECONDS
    with suppress(OSError, subprocess.TimeoutExpired):
        # The kernel removes the interfaces of a namespace a moment after it.
        while name and any(ports.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.02)
        if ip is not None and name and not any(ports.iterdir()):
            _run_command([ip, "link", "delete", name])


def _list_routed_addresses(path: Path) -> set[ipaddress.IPv4Address]:
    """The IPv4 addresses that a network namespace routes."""
    nsenter = find_tool("nsenter")
    if nsenter is None:
        return set()
    text = _run_command([nsenter, f"--net={path}", "cat", "/proc/net/fib_trie"])
    return {ipaddress.IPv4Address(value) for value in _ADDRESS.findall(text)}


def _run_command(command: list[str]) -> str:
    return subprocess.run(
        command, capture_output=True, check=False, timeout=_NFT_SECONDS, text=True, stdin=subprocess.DEVNULL
    ).stdout
