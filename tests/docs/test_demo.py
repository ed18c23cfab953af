"""What `make run` prints works as printed, in a second terminal, on a machine where Git knows nobody."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reconciler.demo import STEPS
from tests.docs.shell import environment, typed, until


@contextmanager
def trial(directory: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon that `make run` starts, writing to ``log``; it has begun when this begins."""
    command = [sys.executable, "-m", "reconciler.demo", str(directory)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment(log.parent), stdout=out, stderr=subprocess.STDOUT)
    try:
        until(lambda: "started" in log.read_text() or process.poll() is not None)
        yield process
    finally:
        process.kill()
        process.wait()


def commands(told: str) -> list[str]:
    """The commands that were printed."""
    return [line.strip() for line in told.splitlines() if line.startswith("    ")]


def test_a_change_arrives_that_is_made_with_the_printed_commands(tmp_path: Path) -> None:
    place, log = tmp_path / "a trial", tmp_path / "log"
    with trial(place, log) as process:
        until(lambda: "created=20" in log.read_text())
        printed = commands(log.read_text())
        assert len(printed) == sum(len(lines) for _, lines in STEPS)
        told = typed("\n".join(printed), tmp_path, tmp_path)
        assert "maxScale  6 → 8" in told
        assert "did you mean `cpu`?" in told
        assert "key: workload/shop/api" in told
        look = "\n".join([*printed[:2], "reconciler get workload api --gvc shop -o json"])

        def grown() -> bool:
            (item,) = json.loads(typed(look, tmp_path, tmp_path))["items"]
            return bool(item["spec"]["defaultOptions"]["autoscaling"]["maxScale"] == 8)

        until(grown)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    said = log.read_text()
    assert "updated=2" in said
    assert "stopped" in said
    assert f"make run DEMO_DIR='{place}'" in said
    assert f"rm -rf '{place}'" in said


def test_a_trial_goes_on_where_it_was(tmp_path: Path) -> None:
    place, log = tmp_path / "trial", tmp_path / "log"
    with trial(place, log):
        until(lambda: "created=20" in log.read_text())
    with trial(place, log) as process:
        happened = typed("\n".join([*commands(log.read_text())[:2], "reconciler events"]), tmp_path, tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert happened.count(" Created ") == 20
    assert "warning" not in log.read_text()


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep me")
    told = subprocess.run(
        [sys.executable, "-m", "reconciler.demo", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (2, "")
    assert "name another directory" in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
