"""Lets a scenario happen on a stage, and records what people see of it."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

from reconciler.model.record import Record
from tests.kubernetes.scenarios.scenario import Scenario, Step, Target
from tests.kubernetes.scenarios.stages import Stage, seconds_to_minute
from tests.kubernetes.scenarios.transcript import Lines, Snapshot, read_events, replace_names
from tests.support.sandbox import eventually

CALM_SECONDS = 1.2
"""For so long nothing changes any more that people see."""
SEPARATOR = " = "
"""Between a path and its value in the text of a transcript."""
PATIENCE = 120.0
SLOW_PATIENCE = 240.0
SPARE_SECONDS = 30.0
"""So long before a full minute nothing begins for which no scheduled time shall come."""

Transcript = dict[str, Lines]
"""What changed for people with each step."""


class ScenarioRunner:
    """One scenario on one stage."""

    def __init__(self, scenario: Scenario, stage: Stage) -> None:
        self._scenario = scenario
        self._stage = stage
        self._sandbox = stage.sandbox
        self._daemons = ExitStack()
        self._before: Lines = {}
        self._event = 0
        self._names: dict[str, str] = {}
        self._patience = SLOW_PATIENCE if scenario.slow else PATIENCE
        steps = scenario.steps
        self._files = sorted({name for step in steps for docs in step.push.values() for name in list_names(docs or [])})

    def run(self) -> Transcript:
        """Let all steps happen; what changed with each."""
        with self._daemons:
            self._start_daemon()
            return {step.step: self._take(step) for step in self._scenario.steps}

    def _start_daemon(self) -> None:
        self._daemons.close()
        self._daemons.enter_context(self._sandbox.daemon())

    def _take(self, step: Step) -> Lines:
        answers = self._act(step)
        try:
            snapshot = self._wait(step)
        except AssertionError as error:
            error.add_note("\n".join(text for _, text in answers))
            raise
        events, self._event = read_events(self._sandbox, self._event)
        self._names |= snapshot.names
        now = snapshot.lines()
        changed = {path: value for path, value in now.items() if self._before.get(path) != value}
        changed |= {path: "(none)" for path in self._before if path not in now}
        self._before = now
        changed |= {f"event {replace_names(event, self._names)}": "" for event in events}
        return changed | {f"answer {number}": replace_names(text, self._names) for number, text in answers}

    def _act(self, step: Step) -> list[tuple[int, str]]:
        stage, sandbox = self._stage, self._sandbox
        if self._scenario.timed and not step.due and seconds_to_minute() < SPARE_SECONDS:
            time.sleep(seconds_to_minute())
        if step.restart_daemon:
            self._start_daemon()
        for name, text in step.secrets.items():
            write_secret(sandbox.path, name, text)
        answers = list(enumerate(map(self._run, step.run), 1))
        if step.push:
            sandbox.repo.commit({f"shop/{path}": self._format(docs) for path, docs in step.push.items()})
        for workload, script in step.behave.items():
            stage.behave(workload, script)
        for workload in step.hang:
            stage.hang(workload)
        for workload, code in step.exit.items():
            stage.exit(workload, code)
        for workload in step.stop:
            stage.stop(workload)
        for workload, millicores in step.use.items():
            stage.use(workload, millicores)
        stage.run_due(step.due)
        return answers

    def _format(self, docs: list[dict[str, Any]] | None) -> str | None:
        return None if docs is None else "\n---\n".join(json.dumps(self._stage.adapt(doc)) for doc in docs) + "\n"

    def _run(self, line: str) -> str:
        done = self._sandbox.run(*shlex.split(line)[1:])
        return " | ".join([f"exit code {done.returncode}", *(done.stdout + done.stderr).splitlines()])

    def _wait(self, step: Step) -> Snapshot:
        """What is there once it is as the step wants it, and has been for a while."""
        last: tuple[float, Lines] = (0.0, {})
        snapshot = Snapshot(self._sandbox, self._files)

        def is_calm() -> bool:
            nonlocal last, snapshot
            snapshot = Snapshot(self._sandbox, self._files)
            lines, now = snapshot.lines(), time.monotonic()
            if lines != last[1] or not all(self._is_met(key, target, snapshot) for key, target in step.until.items()):
                last = now, lines
            return now - last[0] >= CALM_SECONDS

        try:
            eventually(is_calm, f"{self._scenario.name}: {step.step}", self._patience)
        except AssertionError as error:
            error.add_note("\n".join(f"{path}: {value}" for path, value in snapshot.lines().items()))
            raise
        return snapshot

    def _is_met(self, key: str, target: Target, snapshot: Snapshot) -> bool:
        record = next((record for record in snapshot.records.values() if str(record.key) == key), None)
        if target.event is not None:
            events, _ = read_events(self._sandbox, self._event)
            if not any(re.search(target.event, event) for event in events if event.startswith(key)):
                return False
        if record is None or target.gone:
            return target.gone and record is None
        published = f"health: {record.health}" in snapshot.files.get(f"{record.key.kind}/{record.key.name}", "health: ")
        return published and matches(target, record)


def matches(target: Target, record: Record) -> bool:
    """Whether a resource is as it shall be."""
    state = json.loads(record.state)
    status = state.get("status", {})
    replicas, executions = status.get("replicas", []), status.get("jobExecutions", [])
    seen = {
        "health": str(record.health),
        "version": record.version,
        "ready": sum(replica["ready"] for replica in replicas),
        "replicas": len(replicas),
        "restarts": sum(replica["restarts"] for replica in replicas),
        "executions": [execution["status"] for execution in executions],
    }
    if target.message is not None and not re.search(target.message, json.dumps(state)):
        return False
    return all(getattr(target, name) in (None, value) for name, value in seen.items())


def list_names(docs: Iterable[dict[str, Any]]) -> Iterable[str]:
    """The status files of manifests, without their ending."""
    for doc in docs:
        if doc["kind"] in ("workload", "volumeset"):
            yield f"{doc['kind']}/{doc['name']}"


def write_secret(path: Any, name: str, text: str) -> None:
    """Write the file of a secret."""
    folder = path / "secrets"
    file = folder / name
    file.touch(0o600)
    file.write_text(text)


def format_transcript(transcript: Transcript) -> str:
    """The text of a transcript."""
    parts = []
    for step, lines in transcript.items():
        parts.append(f"# {step}")
        parts += sorted(f"{path}{SEPARATOR}{value}" if value else path for path, value in lines.items())
        parts.append("")
    return "\n".join(parts)
