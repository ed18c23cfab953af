"""What ends a release: something that the person who makes it can mend."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ReleaseFailed(Exception):
    """A release cannot be made; the text says why, and what to do."""


def run_command(command: Sequence[object], cwd: Path, environ: Mapping[str, str]) -> str:
    """What a command prints; raises ReleaseFailed with its last lines. New files get the usual modes."""
    words = [str(word) for word in command]
    try:
        ended = subprocess.run(
            words, cwd=cwd, env=dict(environ), capture_output=True, text=True, check=False, umask=0o022
        )
    except FileNotFoundError:
        raise ReleaseFailed(f"{words[0]} is not installed") from None
    if ended.returncode:
        raise ReleaseFailed(f"{' '.join(words[:4])} failed: {(ended.stderr or ended.stdout).strip()[-2000:]}")
    return ended.stdout
