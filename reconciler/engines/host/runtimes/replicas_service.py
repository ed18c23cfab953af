"""The systemd service of what outlives the daemon: its processes are moved there, if there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from reconciler.logs import log

ENV_REPLICAS_UNIT = "RECONCILER_REPLICAS_UNIT"
"""Contains the name of the service; the unit of the daemon sets it."""
_BUSCTL_SECONDS = 5
_MANAGER = "org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"


def move_to_service(pid: int) -> None:
    """Move a process into the containers' own systemd service, if there is one. Blocks for some milliseconds.

    A restart of the daemon does not affect that service. systemd moves a process of the daemon's user into a service
    that is delegated to this user, for any layout of control groups. The daemon could not do that itself: the parent
    group of both services belongs to systemd. On failure the process stays where it is; the only effect is a message of
    systemd at a restart.
    """
    unit = os.environ.get(ENV_REPLICAS_UNIT, "")
    if not unit:
        return
    busctl = shutil.which("busctl")
    if busctl is None:
        _warn_service(unit, "busctl is not installed")
        return
    method = (*_MANAGER.split(), "AttachProcessesToUnit", "ssau")
    try:
        done = subprocess.run(
            [busctl, "--quiet", f"--timeout={_BUSCTL_SECONDS}", "call", *method, unit, "", "1", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * _BUSCTL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _warn_service(unit, str(error))
        return
    if done.returncode:
        _warn_service(unit, done.stderr.decode(errors="replace").strip())


@cache
def _warn_service(unit: str, why: str) -> None:
    """Log each reason once."""
    log().warning("replicas", unit=unit, message=f"containers stay in the daemon's own service: {why}")
