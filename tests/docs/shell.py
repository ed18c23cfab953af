"""Commands as people see them printed, run as people run them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE = 60.0
NO_IDENTITY = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""A user whom Git does not know yet, as on a fresh machine."""
OURS = frozenset({"PYTHONPATH", "RECONCILER_SETTINGS", "VIRTUAL_ENV", "EMAIL", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"})


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a new shell of a user whose home is ``home``."""
    inherited = {name: value for name, value in os.environ.items() if name not in OURS and not name.startswith("GIT_")}
    return {**inherited, **NO_IDENTITY, "HOME": str(home), "NO_COLOR": "1", **more}


def typed(script: str, home: Path, cwd: Path, **more: str) -> str:
    """What ``script`` prints, run by a shell that stops at the first failure."""
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if result.returncode:
        pytest.fail(f"exit code {result.returncode} of\n{script}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def until(holds: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait until ``holds``; fails after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {patience:.0f} s: {holds.__name__}")
        time.sleep(0.05)


def blocks(text: str, language: str) -> list[str]:
    """Fenced blocks of a Markdown text that are marked ``language`` ("": not at all)."""
    return [block for mark, block in re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.M | re.S) if mark == language]
