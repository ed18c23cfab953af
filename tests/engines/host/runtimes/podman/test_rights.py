"""The rights of the daemon beside Podman, and its temporary directories."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from reconciler.engines.host.runtimes.podman.capabilities import may_enter_containers
from reconciler.engines.host.runtimes.podman.programs import make_folder, remove_old_folders
from tests.support.programs import only_root, tool

DISCOVER = """
import asyncio, sys
from pathlib import Path
from reconciler.engines.host.runtimes.podman.api.client import PodmanClient
from reconciler.engines.host.runtimes.podman.capabilities import discover_capabilities
from tests.engines.host.runtimes.podman.libpod import INFO, Libpod
info = {**INFO, "host": {**INFO["host"], "ociRuntime": {"name": "runc", "path": sys.executable}}}
client = PodmanClient(Path("/nonexistent"), Libpod(info).transport())
print(asyncio.run(discover_capabilities(client, Path("/nonexistent"), Path("/tmp"))).direct)
"""


@only_root("only root has the rights that are dropped here")
@pytest.mark.parametrize(
    ("dropped", "direct"), [((), "True"), (("-sys_admin",), "False"), (("-net_admin",), "False"), (("-kill",), "False")]
)
def test_a_root_without_the_rights_leaves_commands_to_podman(dropped: tuple[str, ...], direct: str) -> None:
    confined = [tool("setpriv", "util-linux"), *(f"--bounding-set={each}" for each in dropped)]
    done = subprocess.run([*confined, sys.executable, "-c", DISCOVER], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == direct


def test_capabilities_that_are_unknown_are_none(tmp_path: Path) -> None:
    assert not may_enter_containers(tmp_path / "missing")
    (tmp_path / "status").write_text("CapEff:\t00000000000000e0\n")
    assert not may_enter_containers(tmp_path / "status")


def test_directories_of_killed_processes_go_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    recent, own = tmp_path / f"reconciler-exec-{killed.pid}-a", make_folder()
    old, older = tmp_path / f"reconciler-exec-{killed.pid}-b", tmp_path / "reconciler-exec-x7k2p"
    for folder in (recent, old, older):
        folder.mkdir()
        (folder / "pid").write_text("7")
    for folder in (own, old, older):
        os.utime(folder, (0, 0))
    remove_old_folders()
    assert {*tmp_path.iterdir()} == {recent, own}
