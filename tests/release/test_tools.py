"""The wheel of a release is installed by the tools that people use for programs: pipx and uv."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.tree import ROOT
from tests.release.conftest import Release
from tests.support.trust import machine_environ

pytestmark = pytest.mark.packaging

PROGRAMS = Path(sys.executable).parent
COMMANDS = {
    "pipx": ["pipx", "install", "--python", sys.executable],
    "uv": ["uv", "tool", "install", "--no-config", "--python", sys.executable, "--constraints", "constraints.txt"],
}


@pytest.mark.parametrize("tool", COMMANDS)
def test_a_tool_installs_the_three_commands_from_the_wheel(released: Release, tmp_path: Path, tool: str) -> None:
    hidden = ("PYTHON", "VIRTUAL_ENV", "UV_", "PIPX_", "XDG_")
    visible = {name: value for name, value in machine_environ().items() if not name.startswith(hidden)}
    home = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/.local/bin:{os.environ['PATH']}", "UV_SYSTEM_CERTS": "true"}
    (tmp_path / "constraints.txt").write_bytes((ROOT / "examples/ci/constraints.txt").read_bytes())
    install = [str(PROGRAMS / COMMANDS[tool][0]), *COMMANDS[tool][1:], str(released.find("*.whl"))]
    done = subprocess.run(install, cwd=tmp_path, env=visible | home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for command in ("reconciler", "platform", "docker-credential-platform"):
        path = tmp_path / ".local/bin" / command
        asked = subprocess.run([path, "--version"], env=visible | home, capture_output=True, text=True, check=False)
        assert "0.1.0" in asked.stdout, f"{command}: {asked.stderr}"
