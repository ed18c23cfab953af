"""What happens to pods, as a test scripts it, and what their containers write."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import datetime
from fnmatch import fnmatch
from typing import Any, NamedTuple

from tests.kubernetes.cluster.scripts import VARIABLE, Script, parse_script
from tests.kubernetes.fake.errors import Object

EPOCH = "1970-01-01T00:00:00Z"
FIRST = "2026-01-01T00:00:00Z"


class PodScript(NamedTuple):
    """What becomes of the pods whose ``namespace/name`` matches a pattern.

    ``state`` is Running, Unready, PullError, Crash, Unschedulable, Succeeded or Failed. ``exit_code`` and ``restarts``
    are those of a container that ends; ``message`` are the words of the scheduler, of the registry or of the container.
    Pods of jobs end with success where no script matches.
    """

    state: str = "Running"
    message: str = ""
    exit_code: int = 1
    restarts: int = 0


class EndedRun(NamedTuple):
    """The end of containers that started again: how often they have, the exit code, and when they had begun."""

    count: int = 0
    code: int = 0
    begun: str = ""


class TimedLine(NamedTuple):
    """A line, and when it was written: ``2026-01-31T12:00:00.000000001Z``."""

    time: str
    text: bytes


class LogSource:
    """The lines of a container, which may become more; those without a time are from the beginning of 2026."""

    def __init__(self) -> None:
        self.lines: list[str | TimedLine] = []
        self.previous: list[str | TimedLine] = []
        self.ended = False


class LogView:
    """The part of a source that a request asks for."""

    def __init__(self, source: LogSource, query: dict[str, str]) -> None:
        self._source = source
        self._previous = query.get("previous") == "true"
        self._with_times = query.get("timestamps") == "true"
        self._since = datetime.fromisoformat(query.get("sinceTime", EPOCH))
        self._limit = int(query["limitBytes"]) if "limitBytes" in query else None
        tail = query.get("tailLines")
        count = len(self._all())
        self._start = max(count - int(tail), 0) if tail else 0

    def _all(self) -> list[str | TimedLine]:
        return self._source.previous if self._previous else self._source.lines

    def _show(self, lines: list[str | TimedLine]) -> bytes:
        timed = (TimedLine(FIRST, line.encode()) if isinstance(line, str) else line for line in lines)
        shown = (line for line in timed if datetime.fromisoformat(line.time) >= self._since)
        return b"".join((f"{line.time} ".encode() if self._with_times else b"") + line.text + b"\n" for line in shown)

    def text(self) -> bytes:
        """The lines that are there."""
        return self._show(self._all()[self._start :])[: self._limit]

    async def follow(self, notifier: Any) -> AsyncIterator[bytes]:
        """The lines, and those that come, until the log ends."""
        at = self._start
        try:
            while True:
                ended = self._source.ended
                lines = self._all()[at:]
                at += len(lines)
                if lines:
                    yield self._show(lines)
                if ended:
                    return
                await notifier.wait(60)
        finally:
            notifier.close()


class Pods:
    """The scripts and logs of pods."""

    def __init__(self) -> None:
        self._scripts: list[tuple[str, PodScript]] = []
        self._followed: list[tuple[str, Script]] = []
        self._first_seen: dict[str, float] = {}
        self.start_seconds = 0.0
        """How long containers that follow no state are not ready at first."""
        self.logs_start = False
        """Whether containers log that they start, as those of real clusters of the tests do."""
        self.ends: dict[str, EndedRun] = {}
        """The last end of the containers of a pod, by its uid."""
        self._logs: dict[tuple[str, str, str], LogSource] = {}

    def script(self, pattern: str, state: str, message: str = "", exit_code: int = 1, restarts: int = 0) -> None:
        """Let the pods that match ``pattern`` (``namespace/name``) be in ``state`` from the next converge on."""
        self._scripts.insert(0, (pattern, PodScript(state, message, exit_code, restarts)))

    def follow(self, pattern: str, script: Script) -> None:
        """Let the pods that match ``pattern`` do what containers of a real cluster of the tests do by ``script``."""
        self._followed.insert(0, (pattern, script))

    def begin_again(self, uid: str) -> None:
        """Let the containers of a pod be as if they had just started."""
        self._first_seen.pop(uid, None)

    def is_starting(self, pod: Object) -> bool:
        """Whether its containers have just started."""
        first = self._first_seen.setdefault(pod["metadata"]["uid"], time.monotonic())
        return time.monotonic() - first < self.start_seconds

    def may_end(self, pod: Object, now: float) -> bool:
        """Whether the containers of a pod that is deleted have ended at ``now``, in seconds since the epoch."""
        needed = self._find_followed(pod).stop_after
        metadata = pod["metadata"]
        due = datetime.fromisoformat(metadata["deletionTimestamp"]).timestamp()
        return not needed or now >= due - metadata.get("deletionGracePeriodSeconds", 0) + needed

    def _find_followed(self, pod: Object) -> Script:
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pattern, script in self._followed:
            if fnmatch(name, pattern):
                return script
        ends = pod["spec"]["restartPolicy"] != "Always"
        return _find_own_script(pod) or (Script(exit=0) if ends else Script())

    def script_of(self, pod: Object) -> PodScript:
        """The newest script for a pod; then what its containers bring."""
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        ends = pod["spec"]["restartPolicy"] != "Always"
        for pattern, script in self._scripts:
            if fnmatch(name, pattern):
                return script
        followed = self._find_followed(pod)
        if self.is_starting(pod) and not followed.pull:
            return PodScript("Unready")
        return _freeze_script(followed, ends)

    def source(self, namespace: str, name: str, container: str = "") -> LogSource:
        """The log of a container; one without a name is the first."""
        return self._logs.setdefault((namespace, name, container), LogSource())

    def log_of(self, namespace: str, name: str, query: dict[str, str]) -> LogView:
        """What a request for a log gets."""
        container = query.get("container", "")
        named = self._logs.get((namespace, name, container))
        source = named or self.source(namespace, name)
        if self.logs_start and not source.previous:
            source.previous.append(f"{container} started")
        return LogView(source, query)


def _find_own_script(pod: Object) -> Script | None:
    """The script that a container of the pod brings in its variable."""
    for container in pod["spec"]["containers"]:
        for variable in container.get("env") or ():
            if variable["name"] == VARIABLE:
                return parse_script(variable.get("value", ""))
    return None


def _freeze_script(script: Script, ends: bool) -> PodScript:
    """What a script leads to in the end; ``ends``: the pod is not started again."""
    if script.pull:
        return PodScript("PullError", script.pull)
    if script.exit is None:
        return PodScript("Running" if script.ready else "Unready")
    if not ends:
        return PodScript("Crash", script.message, script.exit, restarts=1)
    return PodScript("Failed" if script.exit else "Succeeded", script.message, script.exit)
