"""Runs the check of a snapshot in a container of its own, like one of the workload, which ends with it.

It belongs to no replica: no controller, no probe and no service knows it, and what a killed daemon leaves of it is
removed at the next start.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from reconciler.clock import Clock
from reconciler.engines.host.controllers.context import LogCollection
from reconciler.engines.host.disk.ownership import Owner
from reconciler.engines.host.logs.cri import plain_lines
from reconciler.engines.host.provisioning.provisioner import Provisioner
from reconciler.engines.host.runtimes.protocol import ContainerId, ExecResult, OutputForm, RunningContainer, Runtime
from reconciler.engines.host.volumesets.verifier import CheckRun
from reconciler.errors import EngineError
from reconciler.model.key import Key
from reconciler.reasons import Reason

PACE = 0.5
"""Seconds between two looks whether a check has ended."""
_TAIL = 4096
"""Bytes of the end of its output that are read."""


def check_name(workload: Key) -> str:
    """The name of the container's replica, which no replica of the workload ever gets."""
    return f"{workload.name}-verify"


def is_check(container_id: ContainerId) -> bool:
    """Whether a container runs a check, and is no part of a replica."""
    return container_id.replica == check_name(container_id.key)


class CheckContainers:
    """Starts them with ``runtime``, from what ``provisioner`` prepares; ``logs`` stores their output."""

    def __init__(self, runtime: Runtime, provisioner: Provisioner, logs: LogCollection, clock: Clock) -> None:
        self._runtime = runtime
        self._provisioner = provisioner
        self._logs = logs
        self._clock = clock

    def owner(self, key: Key) -> Owner:
        """The user of the files of a workload. Raises EngineError."""
        return self._provisioner.owner(key)

    async def run(self, check: CheckRun, timeout: float) -> ExecResult:
        """Run ``check`` to its end, for ``timeout`` seconds at most. Raises EngineError if it cannot start."""
        container_id = ContainerId(check.workload, check_name(check.workload), check.container)
        try:
            await self._runtime.start(self._provisioner.launch_check(container_id, check))
            path, form = self._runtime.output(container_id), self._runtime.output_form(container_id)
            self._logs.watch(container_id, path, form)
            ended = await self._wait(container_id, timeout)
            output = await asyncio.to_thread(_read_tail, path, form)
            await self._logs.forget(container_id)
        finally:
            await self._runtime.remove(container_id.key, container_id.replica)
            await self._provisioner.release_check(container_id)
        if ended is None:
            return ExecResult(1, output, timed_out=True)
        return ExecResult(1 if ended.code is None else ended.code, output)

    async def _wait(self, container_id: ContainerId, timeout: float) -> RunningContainer | None:
        """The container once it has ended; None if it runs for longer. Raises EngineError if it is gone."""
        deadline = self._clock.monotonic() + timeout
        while self._clock.monotonic() < deadline:
            running_container = next(
                (container for container in await self._runtime.list() if container.place == container_id), None
            )
            if running_container is None:
                raise EngineError("its container was removed", reason=Reason.SNAPSHOT_VERIFICATION_FAILED)
            if not running_container.alive:
                return running_container
            await self._clock.sleep(PACE)
        return None


def _read_tail(path: Path, form: OutputForm) -> str:
    """The end of an output file; "" if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            text = file.read()
    except OSError:
        return ""
    return (b"\n".join(plain_lines(text)) if form is OutputForm.CRI else text).decode(errors="replace")
