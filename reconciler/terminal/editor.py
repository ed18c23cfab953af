"""Lets a person change a file in an editor on this terminal."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
"""Codes of an editor that Ctrl-C has ended, and of a shell around it."""


def run_editor(words: Sequence[str], path: Path) -> int:
    """Run the editor ``words`` on ``path``, in its directory, and return the exit code. Raises OSError.

    Ctrl-C reaches both processes; in an editor it does not mean quit.
    """
    # A handler, unlike SIG_IGN, is not inherited by the editor.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run([*words, str(path)], check=False, cwd=path.parent).returncode
    finally:
        signal.signal(signal.SIGINT, before)
