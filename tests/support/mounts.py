"""Mount namespaces of tests, which begin with a copy of all mounts of this machine."""

from __future__ import annotations

from pathlib import Path


def leave_volumes_of_others(own: Path) -> str:
    """A command that gives up the volumes of other tests in a new mount namespace: they could not be unmounted else."""
    program = '$5 ~ "/volumes/" && index($5, own) != 1 {print $5}'
    return f"awk -v own={own} '{program}' /proc/self/mountinfo | xargs -r -n1 umount -l"
