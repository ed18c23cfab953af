"""Programs of this host that root uses in addition to Podman: the OCI runtime below it, and nft."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import EngineError
from reconciler.reasons import Reason

if TYPE_CHECKING:
    from reconciler.engines.host.runtimes.podman.capabilities import Capabilities

NOT_FOUND, NOT_PERMITTED, FAILED = 127, 126, 255
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
_FOLDERS = "reconciler-exec-"
_FOLDER = re.compile(rf"{_FOLDERS}(?:(\d+)-)?.+")
_OLD_SECONDS = 3600.0


def make_folder() -> Path:
    """A new temporary directory for one program, with the number of this process in its name. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDERS}{os.getpid()}-"))


def remove_old_folders() -> None:
    """Remove directories of ``make_folder`` that killed processes of this user left an hour ago or earlier. Blocks."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*"):
        match = _FOLDER.fullmatch(path.name)
        with suppress(OSError):
            found = path.lstat()
            own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
            alive = match is not None and match[1] and Path("/proc", match[1]).exists()
            if own and not alive and found.st_mtime < time.time() - _OLD_SECONDS:
                shutil.rmtree(path)


def oci_command(known: Capabilities) -> tuple[str, ...]:
    """The beginning of each command; empty if the daemon cannot use the OCI runtime."""
    return (known.runtime_path, "--root", known.runtime_root) if known.direct else ()


def exit_code(code: int, output: str, *, started: bool) -> int:
    """The exit code of a program; those that never started have the codes that a shell gives them."""
    if started or code == 0:
        return code if code >= 0 else 128 - code
    if any(each in output for each in _MISSING):
        return NOT_FOUND
    if any(each in output for each in _DENIED):
        return NOT_PERMITTED
    raise EngineError(f"a program cannot be run: {' '.join(output.split())[:300]}", reason=Reason.EXEC_FAILED)


def number_in(pid_file: Path) -> int:
    """The process number in a file; 0 before it is written."""
    try:
        text = pid_file.read_text(encoding="ascii").strip()
    except OSError:
        return 0
    return int(text) if text.isdecimal() else 0


def can_restrict() -> bool:
    """Whether this host has the programs that ``drop_packets`` uses."""
    return os.geteuid() == 0 and all(_tool(name) for name in ("nft", "nsenter"))


def drop_packets(pid: int, user: int) -> None:
    """Drop what ``user`` sends in the network namespace of ``pid``; answers count too. Raises EngineError. Blocks."""
    nft, nsenter = _tool("nft"), _tool("nsenter")
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


def _tool(name: str) -> str | None:
    return shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
