"""`reconciler events` lists what happened, and follows new events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from reconciler.reasons import Reason
from reconciler.records.tables.events import NewEvent
from tests.support.records import reconciler, shop
from tests.support.terminal import heed_interrupts


def test_events_are_listed_oldest_first_one_a_line(tmp_path: Path) -> None:
    shop(tmp_path).close()
    result = reconciler("events", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    first, second, third = result.stdout.splitlines()
    assert first.split() == ["2027-01-15T08:00:00Z", "Normal", "Created", "workload/shop/api@aws-us-west-2:", "created"]
    assert "Warning ProgramNotFound" in second
    assert third.endswith("image changed")


def test_events_of_one_resource_and_the_last_of_them(tmp_path: Path) -> None:
    shop(tmp_path).close()
    result = reconciler("events", "workload/shop/api", "--last", "1", "-o", "json", cwd=tmp_path)
    (event,) = map(json.loads, result.stdout.splitlines())
    assert event == {
        "time": "2027-01-15T08:00:02Z",
        "run": 2,
        "key": "workload/shop/api",
        "location": "aws-us-west-2",
        "type": "Normal",
        "reason": "Updated",
        "message": "image changed",
        "id": 3,
    }


def test_following_shows_what_another_process_records(tmp_path: Path) -> None:
    records = shop(tmp_path)
    words = ["-m", "reconciler.cli", "events", "--follow", "--last", "1", "-o", "json"]
    environ = {**os.environ, "RECONCILER_SETTINGS": str(tmp_path / "settings.yaml")}
    following = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        preexec_fn=heed_interrupts,
    )
    assert following.stdout is not None
    try:
        assert json.loads(following.stdout.readline())["id"] == 3
        for number in (4, 5):
            records.events.append("", Reason.RECOVERED, f"run {number}")
            assert json.loads(following.stdout.readline())["message"] == f"run {number}"
    finally:
        following.send_signal(signal.SIGINT)
        _, complaint = following.communicate(timeout=60)
    assert following.returncode == 130
    assert "Traceback" not in complaint


def test_a_reader_that_goes_away_is_no_error_to_shout_about(tmp_path: Path) -> None:
    records = shop(tmp_path)
    records.events.append_many([NewEvent("", Reason.RECOVERED, "x" * 200)] * 2_000)
    result = subprocess.run(
        f"{sys.executable} -m reconciler.cli events --last 2000 | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "RECONCILER_SETTINGS": str(tmp_path / "settings.yaml")},
    )
    assert len(result.stdout.splitlines()) == 1
    assert result.stderr == ""
