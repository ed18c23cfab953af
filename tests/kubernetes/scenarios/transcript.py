"""What people see after a step, as lines ``PATH: VALUE``, without what is another in every run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from reconciler.errors import RecordsError
from reconciler.model.record import Record
from tests.support.sandbox import DaemonSandbox

Lines = dict[str, str]
"""Values by their paths."""

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?Z")
SECONDS = re.compile(r"\b\d+\.\d s\b")
USAGE = re.compile(r"\bcpu is [\d.]+")
ID = re.compile(r"\b[0-9a-f]{12}\b")
LEFT_OUT = re.compile(
    r"[. ](key|path|revision|source|engine|address|ports|node|alias|endpoint|canonicalEndpoint|internalName"
    r"|domainEndpoints|resolvedImages|currentBytesUsed|created|startTime|completionTime|lastTransitionTime|lastRestartTime)\b"
    r"|\.type$|\]\.(name|location)$"
)
"""What names this run, this machine or the engine itself, and what is measured at times of its own."""
MOMENTARY = ("VolumeChanging",)
"""Reasons of events about waits of a moment, which may be over before anyone has to wait."""
SOME = "some"
"""Restarts of what is not ready: their number depends on how long one looks."""
NAMED = ("type", "location", "snapshotName")
"""Fields by which an item of a list is found again."""


class Snapshot:
    """All that people see at one moment; ``records`` are those of resources at their locations."""

    def __init__(self, sandbox: DaemonSandbox, files: list[str]) -> None:
        self.records = sandbox.recorded()
        self.names = find_names(self.records)
        self.files = {name: sandbox.status(f"shop/{name}.yaml") for name in files}

    def lines(self) -> Lines:
        """Its lines, by path."""
        lines: Lines = {}
        for name, text in self.files.items():
            for path, value in flatten(read_status(text)):
                lines[f"status {name} {path}"] = value
        for key, record in self.records.items():
            if record.key.kind in ("workload", "volumeset"):
                lines |= {f"{key.partition('@')[0]} {path}": value for path, value in self._flatten_record(record)}
        return {path: replace_names(value, self.names) for path, value in lines.items() if not LEFT_OUT.search(path)}

    def _flatten_record(self, record: Record) -> Iterator[tuple[str, str]]:
        state = json.loads(record.state)
        replicas = state.get("status", {}).pop("replicas", [])
        for version in state.get("status", {}).get("versions", []):
            for container in version["containers"].values():
                if not container["ready"] and container["restarts"]["count"]:
                    container["restarts"]["count"] = SOME
        yield "health", str(record.health)
        yield from flatten(state)
        for text, count in Counter(describe_replica(replica, self.names) for replica in replicas).items():
            yield f"replica {text}", str(count)


def read_status(text: str) -> Mapping[str, Any]:
    """The content of a file of the status branch."""
    return yaml.load(text, yaml.CSafeLoader) or {}


def describe_replica(replica: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """A replica in words: its name, its version, whether it is ready, restarts and message."""
    ready = "ready" if replica["ready"] else "not ready"
    name = names.get(replica["name"], replica["name"])
    message = f" ({replace_names(replica['message'], names)})" if replica["message"] else ""
    restarts = replica["restarts"] if replica["ready"] or not replica["restarts"] else SOME
    return f"{name} version {replica['version']} {ready} restarts {restarts}{message}"


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of ``value`` with their paths; empty ones are left out."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flatten(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from flatten(inner, f"{path}[{find_label(inner, number)}]")
    elif value not in ("", None):
        shown = value if isinstance(value, str) else json.dumps(value)
        yield path, shown


def find_label(item: Any, number: int) -> str:
    """What an item of a list is found by: a field, or its number."""
    if isinstance(item, dict) and "workload" in item:
        return str(item["workload"])
    named = (item[field] for field in NAMED if isinstance(item, dict) and field in item)
    label = next(named, number)
    return str(number if isinstance(label, str) and re.search(r"\d", label) else label)


def find_names(records: Mapping[str, Record]) -> dict[str, str]:
    """Names of replicas and executions that are another in every run, and what is shown instead."""
    names: dict[str, str] = {}
    for record in records.values():
        status = json.loads(record.state).get("status", {}) if record.key.kind == "workload" else {}
        executions = status.get("jobExecutions", ())
        shown = [item["name"] for item in (*status.get("replicas", ()), *executions)]
        for name in (*shown, *filter(None, (execution["replica"] for execution in executions))):
            if not re.fullmatch(rf"{re.escape(record.key.name)}-\d", name):
                names[name] = f"{record.key.name}-*"
    return names


def replace_names(text: str, names: Mapping[str, str]) -> str:
    """``text`` without times and with what is shown instead of names."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    text = USAGE.sub("cpu is <usage>", text)
    return ID.sub("<id>", SECONDS.sub("<seconds> s", TIME.sub("<time>", text)))


def read_events(sandbox: DaemonSandbox, after: int) -> tuple[list[str], int]:
    """The events since the one with the id ``after``, in words, and the id of the last one."""
    try:
        with sandbox.records() as records:
            events = records.events.list(after_id=after)
    except RecordsError:
        return [], after
    # What of a failure is seen first is a matter of moments; the status has the words of what stays.
    lines = [
        f"{event.key} {event.type} {event.reason}" + ("" if event.reason == "Unhealthy" else f": {event.message}")
        for event in events
        if event.reason not in MOMENTARY
    ]
    return lines, max((event.id for event in events), default=after)
