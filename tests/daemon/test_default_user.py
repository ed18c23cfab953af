"""Stateful workloads with default settings: whoever runs them, they write to their volumes and read them again."""

from __future__ import annotations

import json
import os
import site as packages
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.host.runtimes.process.executable import get_program_identity
from tests.engines.host.volumes.kit import mounted_disk
from tests.support.host_sandbox import HostSandbox, host_sandbox
from tests.support.podman import IMAGE, podman_service
from tests.support.programs import OWNER, give_away, only_root, tool
from tests.support.sandbox import ROOT, eventually

pytestmark = only_root("only root gives workloads users of their own")

wait = partial(eventually, patience=120.0)
DEFAULT_USER, GROUP = 65_534, 54_321
USERS: dict[str, dict[str, int]] = {
    "plain": {},
    "own": {"runAsUser": OWNER},
    "shared": {"runAsUser": OWNER, "filesystemGroupId": GROUP},
}
"""Workload → its security options."""
WRITE = 'cd "$RECONCILER_VOLUMES/data" && touch log && cat log >/dev/stderr && id -u >>log && exec sleep 1000000'
"""Reads and writes its volume and then idles; it ends where it cannot."""


def manifests(image: str) -> dict[str, str]:
    """A stateful workload with a volume for each of the users."""
    files = {}
    for name, options in USERS.items():
        volume = {"uri": f"platform://volumeset/{name}", "path": "/data"}
        container = {"name": "main", "image": image, "command": "/bin/sh", "args": ["-c", WRITE], "volumes": [volume]}
        spec = {"type": "stateful", "containers": [container], "securityOptions": options}
        space = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"}
        documents = [
            {"kind": "workload", "name": name, "gvc": "shop", "spec": spec},
            {"kind": "volumeset", "name": name, "gvc": "shop", "spec": space},
        ]
        files[f"shop/{name}.yaml"] = "---\n".join(json.dumps(each) + "\n" for each in documents)
    return files


@contextmanager
def stateful_sandbox(path: Path, backend: str, runtime: str) -> Iterator[HostSandbox]:
    """A sandbox whose volumes have ``backend``; the disk of a test is smaller than the default reserve."""
    with ExitStack() as stack:
        folder = path
        if backend == "btrfs":
            folder = stack.enter_context(mounted_disk(path / "disk", "btrfs"))
        settings: dict[str, Any] = {"locations": {"here": {"engine": "host", "runtime": runtime}}}
        if runtime == "podman":
            settings["podman"] = {"socket": str(stack.enter_context(podman_service()).socket)}
        host = {"volumes": backend, "diskReserve": 0}
        files = manifests(IMAGE if runtime == "podman" else "none")
        yield stack.enter_context(host_sandbox(folder / "site", files, host=host, **settings))


def has_written(sandbox: HostSandbox, name: str, users: list[int]) -> bool:
    """Whether these users have written to the volume of a workload, each at a start of its own."""
    log = sandbox.state / f"host/here/volumes/shop/{name}/0/log"
    return log.exists() and log.read_text().split() == list(map(str, users))


SHORT = [("directory", "process"), ("image-ext4", "process")]
LONG = [
    ("image-xfs", "process"),
    ("btrfs", "process"),
    ("directory", "podman"),
    ("image-ext4", "podman"),
    ("image-xfs", "podman"),
    ("btrfs", "podman"),
]
PAIRS = [*SHORT, *(pytest.param(*each, marks=pytest.mark.slow) for each in LONG)]


def check(sandbox: HostSandbox, users: dict[str, int]) -> None:
    """Check that each workload writes to its volume as the user of ``users``, and reads that when it has restarted."""
    for name, user in users.items():
        wait(partial(has_written, sandbox, name, [user]), f"{name} writes")
    for name in users:
        done = sandbox.run("restart", f"workload/shop/{name}")
        assert done.returncode == 0, done
    for name, user in users.items():
        wait(partial(has_written, sandbox, name, [user] * 2), f"{name} restarts")
        wait(partial(sandbox.healthy, f"workload/shop/{name}@here"), f"{name} is healthy")
        assert "cannot reach its files" not in sandbox.recorded()[f"workload/shop/{name}@here"].state.decode()


@pytest.mark.parametrize(("backend", "runtime"), PAIRS)
def test_a_stateful_workload_of_any_user_writes_restarts_and_reads(tmp_path: Path, backend: str, runtime: str) -> None:
    # An image decides on its own user, here root, where the manifest names none.
    plain = DEFAULT_USER if runtime == "process" else 0
    with stateful_sandbox(tmp_path, backend, runtime) as sandbox, sandbox.daemon() as daemon:
        check(sandbox, {name: options.get("runAsUser", plain) for name, options in USERS.items()})
        daemon.kill()


def interpreter() -> list[str]:
    """The command of a Python that any user can run, with the modules of this one."""
    user = get_program_identity(OWNER, 0)
    path = Path(sys.executable)
    if not (user.may_enter(path) and user.may_enter(path.resolve())):
        path = Path(tool("/usr/bin/python3.11", "python3.11"))
    return ["env", f"PYTHONPATH={ROOT}:{':'.join(packages.getsitepackages())}", str(path)]


def test_a_daemon_of_a_service_user_runs_them_all_as_itself(tmp_path: Path) -> None:
    with host_sandbox(tmp_path / "site", manifests("none"), host={"volumes": "auto"}) as sandbox:
        give_away(sandbox.path)
        with (sandbox.path / "daemon.log").open("wb") as log:
            daemon = subprocess.Popen(
                [*interpreter(), "-m", "reconciler.cli", "run"],
                cwd="/",
                env={**os.environ, **sandbox.environ},
                stdout=log,
                stderr=log,
                user=OWNER,
                group=OWNER,
                extra_groups=[],
            )
        try:
            check(sandbox, dict.fromkeys(USERS, OWNER))
        finally:
            daemon.kill()
            daemon.wait()
