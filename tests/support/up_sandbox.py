"""A directory that `reconciler up` runs in a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.support.programs import open_way, path_without


class UpSandbox(NamedTuple):
    """A directory to run, a state home of its own, and PATH without Podman, whose images no test can get."""

    folder: Path
    state: Path
    path: str

    @property
    def environ(self) -> dict[str, str]:
        """The variables of each command."""
        environ = {name: value for name, value in os.environ.items() if name != "RECONCILER_SETTINGS"}
        return {**environ, "XDG_STATE_HOME": str(self.state), "PATH": self.path}

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """``reconciler WORDS`` in the directory."""
        running = self.start(*words, cwd=cwd)
        out, err = running.communicate()
        return subprocess.CompletedProcess(words, running.returncode, out, err)

    def run_platform(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``platform WORDS`` in the directory."""
        running = self.start(*words, program="platform_cli")
        out, err = running.communicate()
        return subprocess.CompletedProcess(words, running.returncode, out, err)

    def start(self, *words: str, cwd: Path | None = None, program: str = "cli") -> subprocess.Popen[str]:
        """``reconciler WORDS`` in the directory, or those of another program, not waited for."""
        return subprocess.Popen(
            [sys.executable, "-m", f"reconciler.{program}", *words],
            cwd=cwd or self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def settings(self) -> str:
        """The settings that were written."""
        [file] = self.state.glob("reconciler/*/settings.yaml")
        return file.read_text()


@contextmanager
def open_sandbox(tmp_path: Path, state_name: str = "state", path: str = "") -> Iterator[UpSandbox]:
    """An empty directory; what runs for it ends with the block. ``path`` is that of programs, "": without Podman."""
    folder, state = tmp_path / "project", tmp_path / state_name
    folder.mkdir()
    open_way(tmp_path)
    sandbox = UpSandbox(folder, state, path or path_without("podman", tmp_path / "bin"))
    yield sandbox
    sandbox.run("down", "--volumes")


def page(text: str) -> str:
    """The page at the address in the output of `up`."""
    address = re.search(r"http://127\.0\.0\.1:\d+", text)
    assert address is not None, text
    with urllib.request.urlopen(address[0], timeout=60) as answer:
        return str(answer.read().decode())
