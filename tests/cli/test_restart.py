"""`reconciler restart`: what it answers, and what has no replicas to restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reconciler.records.store import FILE, Records
from tests.support.command_sandbox import SETTINGS, golden, here
from tests.support.records import record

API = "workload/shop/api"
COMMANDS = (
    ("restart", "gvc/shop"),
    ("restart", "workload/shop/nobody"),
    ("restart", "workload/shop/cron"),
    ("restart", "workload/shop/halted"),
    ("restart", "workload/shop/elsewhere"),
    ("restart", "workload/shop/nowhere"),
    ("restart", "workload/shop/moved"),
    ("restart", "workload/shop/half"),
    ("suspend", API),
    ("restart", API),
    ("resume", API),
    ("suspend", "main"),
    ("restart", API),
    ("resume", "main"),
    ("restart", API),
    ("restart", API),
)


def test_only_what_has_replicas_on_this_host_is_restarted(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(
        SETTINGS.replace("  here: {engine: recorded}", "  here: {engine: host, runtime: process}")
    )
    records = Records.open(tmp_path / "state" / FILE)
    stopped: dict[str, Any] = {"suspend": True}
    halves = [{"location": "//location/here", "suspend": False}]
    records.applied.put_many(
        [
            workload("api", "here", engine="host"),
            workload("cron", "here", engine="host", type="cron"),
            workload("halted", "here", engine="host", defaultOptions=stopped),
            workload("elsewhere", "there"),
            workload("nowhere", ""),
            workload("moved", "here"),
            workload("half", "here", engine="host", localOptions=halves, defaultOptions=stopped),
            workload("half", "there", engine="host", localOptions=halves, defaultOptions=stopped),
        ]
    )
    transcript = ""
    for words in COMMANDS:
        ended = here(*words, cwd=tmp_path)
        transcript += f"$ reconciler {' '.join(words)}\n{ended.out}{ended.err}"
    golden("restart.txt", transcript)
    assert records.restarts.count(API) == 2
    assert [each.reason for each in records.events.list(API)][-2:] == ["RestartRequested"] * 2
    records.close()


def workload(name: str, location: str, engine: str = "recorded", **spec: Any) -> Any:
    """A record of a replica that runs, or ran, at its location."""
    container = {"name": "main", "image": "none"}
    body = {"spec": {"type": "standard", "containers": [container], **spec}}
    return record(f"workload/shop/{name}", body, location, engine=engine)
