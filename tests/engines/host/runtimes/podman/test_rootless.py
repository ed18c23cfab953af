"""A real Podman service of a user without rights: what runs on it, and what it lacks."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.programs import only_root, tool

USER = "reconciler-test"
"""Made by tests/setup-debian.sh, with the subordinate numbers that Podman needs."""


@only_root("only root becomes another user")
def test_containers_live_over_the_podman_of_a_user() -> None:
    for name, package in (("podman", "podman"), ("newuidmap", "uidmap"), ("slirp4netns", "slirp4netns")):
        tool(name, package)
    try:
        uid = pwd.getpwnam(USER).pw_uid
    except KeyError:
        message = f"there is no user {USER}: run tests/setup-debian.sh tools"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    # Anybody may open it on a usual machine.
    Path("/dev/net/tun").chmod(0o666)
    # Not below the directory of other tests, which that user may not enter; its paths are short for sockets.
    with tempfile.TemporaryDirectory(prefix="rootless-", dir="/tmp") as top:
        Path(top).chmod(0o755)
        command = [sys.executable, "-m", "tests.engines.host.runtimes.podman.rootless", f"{top}/home", USER]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        finally:
            subprocess.run(["pkill", "-KILL", "-u", str(uid)], check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    limitations = found.pop("limitations")
    assert found == {"output": ["0", "ready"], "page": "page\n", "exec": 4, "adopted": True, "code": 5, "left": []}
    words = ("user 1337 still has a network", "The firewall is not enforced")
    missing = [each for each in words if not any(each in sentence for sentence in limitations)]
    assert missing == []
