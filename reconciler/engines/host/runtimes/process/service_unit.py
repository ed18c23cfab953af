"""Moves containers into a systemd service of their own, so that a restart of the daemon does not affect them.

systemd moves a process of the daemon's user into a service that is delegated to this user, for any layout of control
groups. The daemon could not do that itself: the parent group of both services belongs to systemd.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from reconciler.logs import log

ENV_REPLICAS_UNIT = "RECONCILER_REPLICAS_UNIT"
"""Contains the name of the service; the unit of the daemon sets it."""
_PATIENCE = 5
_CALL = "org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager AttachProcessesToUnit ssau"


def move_to_service(pid: int) -> None:
    """Move a process into the containers' service, if there is one. Blocks for some milliseconds.

    On failure the process stays where it is; the only effect is a message of systemd at a restart.
    """
    unit = os.environ.get(ENV_REPLICAS_UNIT, "")
    if not unit:
        return
    busctl = shutil.which("busctl")
    if busctl is None:
        _warn(unit, "busctl is not installed")
        return
    call = [busctl, "--quiet", f"--timeout={_PATIENCE}", "call", *_CALL.split()]
    try:
        done = subprocess.run(
            [*call, unit, "", "1", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=2 * _PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        _warn(unit, str(error))
        return
    if done.returncode:
        _warn(unit, done.stderr.decode(errors="replace").strip())


@cache
def _warn(unit: str, why: str) -> None:
    """Log each reason once."""
    log().warning("replicas", unit=unit, message=f"containers stay in the daemon's own service: {why}")
