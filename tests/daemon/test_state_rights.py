"""What another user of the host can do with the state directory of a running daemon: nothing that writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.host_sandbox import HostSandbox, host_sandbox, open_place, served
from tests.support.programs import OWNER, adjacent_ports, only_root, tool
from tests.support.sandbox import eventually

STRANGER = 65_534
wait = partial(eventually, patience=60.0)

ATTACK = """
import contextlib, json, os, socket, stat, sys
user, *paths = json.load(sys.stdin)
os.setgroups([])
os.setgid(user)
os.setuid(user)

def connect(path):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as link:
            link.setblocking(False)
            link.connect(path)
            return True

def write(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOFOLLOW))
        return True
    except OSError as error:
        return error.errno == 6  # a pipe that nobody reads

def create(path):
    name = os.path.join(path, "strange")
    with contextlib.suppress(OSError):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.unlink(name)
        return True

found = []
for path, kind in paths:
    tries = {"socket": (connect, write), "directory": (create,)}.get(kind, (write,))
    found += [f"{path}: {one.__name__}" for one in tries if one(path)]
    with contextlib.suppress(OSError):
        os.chmod(path, 0o777)
        found.append(f"{path}: chmod")
print(json.dumps(found))
"""
"""Becomes the user, who then has no capability, and tries everything. The interpreter may lie where no other gets."""


def entries(state: Path) -> Iterator[tuple[str, str]]:
    """Every path of the state directory, and what it is."""
    for path in (state, *state.rglob("*")):
        if path.is_symlink():
            continue
        yield str(path), "socket" if path.is_socket() else "directory" if path.is_dir() else "file"


def attack(state: Path, user: int) -> list[str]:
    """What ``user`` can do there."""
    words = json.dumps([user, *entries(state)])
    command = [sys.executable, "-I", "-c", ATTACK]
    done = subprocess.run(command, input=words, capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.fixture
def sandbox() -> Iterator[HostSandbox]:
    """Workloads with a volume, a secret and an endpoint, served by HAProxy, and the API."""
    tool("haproxy", "haproxy")
    volumes = [{"uri": "scratch://data", "path": "/data"}]
    web = served(replicas=1, volumes=volumes, env={"GREETING": "hello"}, securityOptions={"runAsUser": OWNER})
    locations = {"here": {"engine": "host", "dataplane": "haproxy"}}
    with open_place() as place:
        settings = {"locations": locations, "api": {"address": f"127.0.0.1:{adjacent_ports(1)}"}}
        with host_sandbox(place, {"shop/web.yaml": web}, **settings) as found:
            yield found


SOCKETS = {"api.sock", "wake.sock", "log.sock", "master.sock", "stats.sock"}


@only_root("only root gives workloads users of their own")
def test_another_user_writes_to_no_file_directory_or_socket_of_a_running_daemon(sandbox: HostSandbox) -> None:
    with sandbox.daemon():
        wait(sandbox.healthy)
        # HAProxy may begin after the replicas are ready.
        wait(lambda: {Path(path).name for path, kind in entries(sandbox.state) if kind == "socket"} >= SOCKETS)
        assert attack(sandbox.state, STRANGER) == []
        # The user of a workload has its own directories and nothing else.
        own = [each for each in attack(sandbox.state, OWNER) if os.lstat(each.partition(": ")[0]).st_uid != OWNER]
        assert own == []
