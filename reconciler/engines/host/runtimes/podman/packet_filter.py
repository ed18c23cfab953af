"""Takes the network from a user in the namespace of a sandbox, by nftables."""

from __future__ import annotations

import os
import shutil
import subprocess

from reconciler.errors import EngineError
from reconciler.reasons import Reason

_RULES = (
    "add table inet reconciler; add chain inet reconciler {hook} "
    "{{ type filter hook {hook} priority 0; policy accept; }}; "
    "add rule inet reconciler {hook} meta skuid {user} drop"
)
_NFT_SECONDS = 10.0


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
