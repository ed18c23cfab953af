"""Runs the command as users do, on records such as a daemon leaves."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from reconciler.model.key import Key
from reconciler.model.record import Failure, Health, Record
from reconciler.reasons import Reason
from reconciler.records.store import FILE, Records
from reconciler.records.tables.desired import DesiredEntry
from reconciler.records.tables.events import Events
from tests.support import processes

SETTINGS = """\
org: acme
state: state
sources:
  - {name: main, url: ./manifests, branch: main}
locations:
  aws-us-west-2: {engine: recorded}
"""

AT = 1_800_000_000.0
REVISION = "main@sha1:" + "1" * 40


def reconciler(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {"RECONCILER_SETTINGS": str(cwd / "settings.yaml"), **environ}
    return processes.reconciler(*words, cwd=cwd, environ=environ)


def cpu_seconds(*words: str, cwd: Path) -> float:
    """CPU seconds of one successful ``reconciler WORDS``; waiting for a busy machine does not count."""
    # Compiled modules stay, as they do where the program is installed.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ |= {"PYTHONPYCACHEPREFIX": str(cwd / "compiled"), "RECONCILER_SETTINGS": str(cwd / "settings.yaml")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "reconciler.cli", *words]
    subprocess.run(command, cwd=cwd, stdout=subprocess.DEVNULL, env=environ, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def record(key: str, body: dict[str, object], location: str = "", **fields: object) -> Record:
    parsed = Key.parse(key)
    head = {"kind": str(parsed.kind), "name": parsed.name} | ({"gvc": parsed.gvc} if parsed.gvc else {})
    defaults: dict[str, object] = {
        "source": "main",
        "digest": f"digest of {key}",
        "version": 1,
        "engine": "recorded",
        "health": Health.HEALTHY,
        "revision": REVISION,
        "applied_at": AT,
    }
    return Record(parsed, location, body=json.dumps(head | body).encode(), **(defaults | fields))  # type: ignore[arg-type]


def shop(directory: Path) -> Records:
    """Settings and records of a shop: one workload well, one failing, a secret, and what happened."""
    (directory / "settings.yaml").write_text(SETTINGS)
    records = Records.open(directory / "state" / FILE)
    links = [f"/org/acme/location/{name}" for name in ("aws-us-west-2", "gcp-us-east1")]
    endpoint = {"status": {"endpoint": "https://api-abc.aws-us-west-2.platform.local", "ready": True}}
    applied = [
        record("gvc/shop", {"spec": {"staticPlacement": {"locationLinks": links}}}, alias="abcdefghijklm"),
        record("secret/db", {"type": "dictionary", "data": {"password": "***5f3c", "user": "***77aa"}}),
        record(
            "workload/shop/api",
            {"description": "api", "spec": {"type": "standard"}},
            "aws-us-west-2",
            version=3,
            state=json.dumps(endpoint).encode(),
        ),
        record("workload/shop/web", {"spec": {"type": "serverless"}}, "aws-us-west-2", health=Health.UNHEALTHY),
    ]
    keys = [str(each.key) for each in applied]
    with records.transaction():
        records.applied.put_many(applied)
        records.desired.replace(
            "main", [], [DesiredEntry(key, "main", f"{key}.yaml", 0, 1, "b", f"digest of {key}") for key in keys]
        )
        records.failures.put(
            Failure(
                Key.parse("workload/shop/web"),
                "aws-us-west-2",
                Reason.PROGRAM_NOT_FOUND,
                "no such image",
                2,
                AT,
                AT + 60,
            )
        )
        append_events(records)
    return records


def append_events(records: Records) -> None:
    """Three events, a second apart."""
    times = iter([AT, AT + 1, AT + 2])
    events = Events(records._database, lambda: next(times))
    location = "aws-us-west-2"
    events.append("workload/shop/api", Reason.CREATED, "created", location=location, run=1)
    events.append("workload/shop/web", Reason.PROGRAM_NOT_FOUND, "no such image", location=location, run=1)
    events.append("workload/shop/api", Reason.UPDATED, "image changed", location=location, run=2)
