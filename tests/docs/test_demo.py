"""What `make run` prints works as printed, in a second terminal, on a machine where Git has no identity."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from reconciler.demo import STEPS
from reconciler.engines.host.reading.trial import end_location
from reconciler.settings import Settings
from tests.docs.shell import blocks, environment, typed, until
from tests.project.tree import ROOT
from tests.support.programs import tool

SERVED = {
    f"shop/{name} at {location}" for name in ("api", "db", "web") for location in ("aws-us-west-2", "gcp-us-east1")
}
LONG = 60.0
"""Seconds for what takes one or two on a machine with nothing else to do."""

BOTH = pytest.mark.parametrize("dataplane", ["builtin", pytest.param("haproxy", marks=pytest.mark.slow)])
PROXY: dict[str, list[bytes]] = {"builtin": [], "haproxy": [b"/usr/sbin/haproxy"]}
"""The programs of a data plane."""

VARIES = ((r"-[0-9a-z]{5}\b", "-#"), (r"\d+(\.\d+)?[smh]?", "#"), (r" +", " "))
"""Names of replicas, numbers and the width of columns."""


class DemoTerminal(NamedTuple):
    """A first terminal: the directory, the process, and what it has printed so far."""

    place: Path
    process: subprocess.Popen[bytes]
    log: Path

    def printed(self) -> list[str]:
        """The commands to try."""
        return [line.strip() for line in self.log.read_text().splitlines() if line.startswith("    ")]

    def named(self) -> dict[str, str]:
        """The first address of each workload, as last printed."""
        found = re.findall(r"^  (\S+ at \S+): (http://[\d.:]+)", self.log.read_text(), re.M)
        return dict(found)

    def page(self) -> str:
        """What the addresses of shop/web show, in one text; "" where one does not answer."""
        try:
            return "".join(fetched(url) for name, url in self.named().items() if name.startswith("shop/web "))
        except OSError:
            return ""

    def ended(self, number: int) -> int:
        """The exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(LONG)


@contextmanager
def trial(path: Path, log: Path, dataplane: str = "builtin") -> Iterator[DemoTerminal]:
    """What `make run` starts, writing to ``log``; everything answers when this begins, and nothing runs after it.

    The data plane is that of a machine with a HAProxy, or with one that does not run.
    """
    command = [sys.executable, "-m", "reconciler.demo", str(path)]
    variables = {"PATH": os.environ["PATH"]}
    if dataplane == "builtin":
        (broken := log.parent / "bin" / "haproxy").parent.mkdir(exist_ok=True)
        broken.write_text("#!/bin/sh\nexit 1\n")
        broken.chmod(0o755)
        variables["PATH"] = f"{broken.parent}:{variables['PATH']}"
    else:
        tool("haproxy", "haproxy")
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=environment(log.parent, **variables), stdout=out, stderr=subprocess.STDOUT
        )
    first = DemoTerminal(path, process, log)
    try:
        until(lambda: first.named().keys() >= SERVED or process.poll() is not None, LONG)
        yield first
    finally:
        with suppress(subprocess.TimeoutExpired):
            first.ended(signal.SIGINT)
        process.kill()
        process.wait()
        print(log.read_text())
        for location in ("aws-us-west-2", "gcp-us-east1"):
            asyncio.run(end_location(Settings("acme", (), path / "state"), location))


def running(place: Path) -> list[bytes]:
    """Every process of the trial's replicas and of its HAProxy, by the name of its program."""
    programs, root = [], place / "state" / "host"
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environ = (folder / "environ").read_bytes()
            if (folder / "cwd").readlink().is_relative_to(root) or os.fsencode(root) in environ:
                programs.append((folder / "cmdline").read_bytes().split(b"\0")[0].split()[0])
    return programs


def lines(text: str) -> set[str]:
    """The lines of ``text`` without what varies from run to run."""
    for pattern, mark in VARIES:
        text = re.sub(pattern, mark, text)
    return set(text.splitlines())


def fetched(url: str, body: bytes | None = None) -> str:
    """What ``url`` answers."""
    with urllib.request.urlopen(url, body, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


@BOTH
def test_a_change_arrives_that_is_made_with_the_printed_commands(tmp_path: Path, dataplane: str) -> None:
    with trial(tmp_path / "a trial", tmp_path / "log", dataplane) as first:
        programs = {b"/usr/bin/python3", b"reconciler:", *PROXY[dataplane]}
        assert {*running(first.place)} == programs
        assert first.page().count("<h1>Shop in") == 2
        assert len(first.printed()) == sum(len(lines) for _, lines in STEPS)
        output = typed("\n".join(first.printed()), tmp_path, tmp_path)
        assert len(re.findall(r"^shop/\S+ .* Ready ", output, re.M)) == 8
        shown = "".join(blocks((ROOT / "docs/quickstart.md").read_text(), "text"))
        assert lines(shown) - lines(output + first.log.read_text()) == set()
        assert "/web-" in output
        assert "maxScale  6 → 8" in output
        assert "did you mean `cpu`?" in output
        assert "key: workload/shop/api" in output
        until(lambda: first.page().count("<h1>Our shop in") == 2, LONG)
        script = "\n".join([*first.printed()[:2], "reconciler get workload api --gvc shop -o json"])

        def grown() -> bool:
            item = json.loads(typed(script, tmp_path, tmp_path))
            return bool(item["spec"]["defaultOptions"]["autoscaling"]["maxScale"] == 8)

        until(grown, LONG)
        assert first.ended(signal.SIGINT) == 0
        assert running(first.place) == []
    log = first.log.read_text()
    assert "stopped" in log
    assert f"make run DEMO_DIR='{first.place}'" in log
    assert f"rm -rf '{first.place}'" in log


@pytest.mark.slow
def test_a_trial_goes_on_where_it_was(tmp_path: Path) -> None:
    with trial(tmp_path / "trial", tmp_path / "log", "haproxy") as first:
        fetched(first.named()["shop/api at gcp-us-east1"] + "/orders", b"two cups")
        assert first.ended(signal.SIGTERM) == 0
        assert running(first.place) == []
    with trial(first.place, first.log, "haproxy") as again:
        assert "two cups" in again.page()
        happened = typed("\n".join([*again.printed()[:2], "reconciler events"]), tmp_path, tmp_path)
        table = typed("\n".join([*again.printed()[:2], "reconciler top -o json"]), tmp_path, tmp_path)
        assert again.ended(signal.SIGHUP) == 0, "the terminal was closed"
        assert running(first.place) == []
    assert happened.count(" Created ") == 20
    assert {each["restarts"] for each in json.loads(table)["replicas"]} == {0}
    assert "warning" not in first.log.read_text()


@pytest.mark.slow
def test_a_trial_that_goes_on_already_is_not_begun_again(tmp_path: Path) -> None:
    with trial(tmp_path / "trial", tmp_path / "log") as first:
        page = first.named()["shop/web at gcp-us-east1"]
        result = subprocess.run(
            [sys.executable, "-m", "reconciler.demo", str(first.place)], capture_output=True, text=True, check=False
        )
        assert result.returncode == 1
        assert f"in use by pid {first.process.pid}" in result.stderr
        assert fetched(page).startswith("<h1>Shop in gcp-us-east1")
        assert first.named()["shop/web at gcp-us-east1"] == page


@BOTH
def test_the_documented_command_ends_the_programs_of_a_killed_trial(tmp_path: Path, dataplane: str) -> None:
    (script,) = [block for block in blocks((ROOT / "docs/host.md").read_text(), "sh") if "RECONCILER_ROOT" in block]
    with trial(tmp_path / "trial", tmp_path / "log", dataplane) as first:
        first.process.kill()
        first.process.wait()
        # A master and a worker at each location.
        assert len(running(first.place)) == 16 + 4 * len(PROXY[dataplane])
        mine = script.replace("/var/lib/reconciler", str(first.place / "state")).replace("sleep 10", "sleep 0.1")
        subprocess.run(["bash", "-c", mine], check=True, timeout=LONG)
        assert running(first.place) == []


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep me")
    result = subprocess.run(
        [sys.executable, "-m", "reconciler.demo", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert "name another directory" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
