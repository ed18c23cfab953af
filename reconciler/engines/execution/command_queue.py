"""Performs the commands that operators request, in their order, one at a time for each volume."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec

from reconciler.bugs import internal_error
from reconciler.engines.calls import EngineCall
from reconciler.engines.command_types import result_message, without_secrets
from reconciler.engines.engine_state import health_with_conditions
from reconciler.engines.protocol import Engine, Observation
from reconciler.engines.volume_commands import MAKING_ROOM, VERIFY
from reconciler.errors import EngineError, InternalError, RecordsError
from reconciler.model.key import Key
from reconciler.reasons import Reason
from reconciler.records.reserve import retry_with_reserve
from reconciler.records.store import Records
from reconciler.records.tables.commands import CommandStage, StoredCommand
from reconciler.tasks import cancel_and_wait


class _Result(NamedTuple):
    """The answer of an engine, and how the resource of the command is then, if that can be observed."""

    facts: Mapping[str, Any]
    seen: Observation | None


Work: TypeAlias = asyncio.Task[_Result]

_REASONS = {
    CommandStage.COMPLETED: Reason.COMMAND_COMPLETED,
    CommandStage.FAILED: Reason.COMMAND_FAILED,
    CommandStage.CANCELLED: Reason.COMMAND_CANCELLED,
}


class _Target(msgspec.Struct, frozen=True):
    """What no two commands may change at once: the ``volume`` with an index, its copy, or a workload, at a location."""

    key: Key
    location: str
    volume: object


class CommandQueue:
    """The open commands in the records, and the tasks that perform some of them.

    A command is ``running`` in the records before its engine begins, and ends in the transaction that records its
    outcome: whatever stops the program in between, it is performed again with the same id. The records are written
    only in ``advance``, since other threads use them between two calls.
    """

    def __init__(self, records: Records, engines: Mapping[str, Engine]) -> None:
        self._records = records
        self._engines = engines
        self.calls: Counter[EngineCall] = Counter()
        self._tasks: dict[str, tuple[StoredCommand, Work]] = {}

    async def advance(self, on_end: Callable[[], None] | None = None) -> None:
        """Record the commands that have ended, and begin those that can begin.

        ``on_end`` is called when one that takes longer has ended, and ``advance`` is due again. Without it, only
        engines that never wait perform commands. Raises RecordsError; nothing is lost then.
        """
        for name, (command, task) in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
                self._record(command, task)
        busy = {_get_target(command) for command, _ in self._tasks.values()}
        for command in self._records.commands.open():
            target, engine = _get_target(command), self._engines.get(command.location)
            if command.id in self._tasks or target in busy or not self._is_due(command):
                continue
            if engine is None:
                # No call of an engine, and its location is no label.
                self._finish_failed(
                    command, EngineError(f"this host does not bind {command.location}", reason=Reason.NOT_FOUND)
                )
            elif engine.immediate:
                await self._perform(command, engine)
            else:
                busy.add(target)
                if on_end is not None and self._count(command.location) < engine.parallel:
                    self._begin(command, engine, on_end)

    async def close(self) -> None:
        """Cancel what is being performed; the next daemon performs it again."""
        await cancel_and_wait([task for _, task in self._tasks.values()], "commands")
        self._tasks.clear()

    def _is_due(self, command: StoredCommand) -> bool:
        """Whether its precondition is met: the desired workload is the applied one. One that never is cancels it."""
        wait = command.precondition
        if wait is None:
            return True
        source, desired = self._records.sources.get(wait.source), self._records.desired.get(wait.key)
        if source is None:
            self._finish(command, CommandStage.CANCELLED, f"{wait.source} is no longer in the settings")
        applied = self._records.applied.at(wait.key, command.location)
        desired_digest, text = (record.digest if record is not None else "" for record in (desired, applied))
        return source is not None and source.commit == wait.commit and text == desired_digest

    def _count(self, location: str) -> int:
        return sum(command.location == location for command, _ in self._tasks.values())

    async def _perform(self, command: StoredCommand, engine: Engine) -> None:
        """Perform a command whose engine writes the records: its effect and its end are one transaction."""
        try:
            with self._records.transaction():
                if self._records.commands.start(command.id):
                    self._complete(command, await _send_command(command, engine))
        except RecordsError:
            raise
        except Exception as error:  # noqa: BLE001 - the operator gets an answer, and other commands go on
            self._fail(command, error)

    def _begin(self, command: StoredCommand, engine: Engine, on_end: Callable[[], None]) -> None:
        records = self._records
        starts = partial(records.commands.start, command.id)
        started = retry_with_reserve(records.reserve, starts) if command.type in MAKING_ROOM else starts()
        if not started:
            return
        task = asyncio.create_task(_execute_command(command, engine), name=f"{command.type} {command.key}")
        task.add_done_callback(lambda _: on_end())
        self._tasks[command.id] = command, task

    def _record(self, command: StoredCommand, task: Work) -> None:
        if task.cancelled():
            return  # it is still open, and is performed again
        error = task.exception()
        if error is None:
            facts, seen = task.result()
            with self._records.transaction():
                if seen is not None:
                    self._record_seen(seen)
                self._complete(command, facts)
        elif isinstance(error, RecordsError):
            raise error
        else:
            self._fail(command, error)

    def _record_seen(self, seen: Observation) -> None:
        """Record the effect together with the end of the command: what is asked after that shows it."""
        record = self._records.applied.at(seen.key, seen.location)
        if record is not None and (record.digest, record.version) == (seen.digest, seen.version):
            health = health_with_conditions(seen.health, seen.state)
            self._records.applied.update_seen(seen.key, seen.location, health, seen.state)

    def _complete(self, command: StoredCommand, result: Mapping[str, Any]) -> None:
        self.calls[EngineCall(command.location, "command")] += 1
        message = result_message(command.type, command.spec, result)
        self._finish(command, CommandStage.COMPLETED, message)

    def _fail(self, command: StoredCommand, error: BaseException) -> None:
        failure: EngineError | InternalError
        failure = error if isinstance(error, EngineError) else internal_error(error, f"command {command.type}")
        self.calls[EngineCall(command.location, "command", str(failure.reason))] += 1
        self._finish_failed(command, failure)

    def _finish_failed(self, command: StoredCommand, error: EngineError | InternalError) -> None:
        self._finish(command, CommandStage.FAILED, f"{error.reason}: {error}")

    def _finish(self, command: StoredCommand, stage: CommandStage, message: str) -> None:
        reason = _REASONS[stage]
        key, records = str(command.key), self._records
        with records.transaction():
            records.commands.finish(command.id, stage, [message], without_secrets(command.spec))
            records.events.append(key, reason, f"{command.by}: {command.type}: {message}", location=command.location)
            for record in records.applied.get(command.key)[:1]:
                records.status_queue.add_many(record.source, [key])


async def _execute_command(command: StoredCommand, engine: Engine) -> _Result:
    facts = await _send_command(command, engine)
    seen: list[Observation] = []
    with suppress(EngineError):
        seen = await engine.observe()
    return _Result(
        facts,
        next(
            (observation for observation in seen if observation.key == command.key and observation.state != b"{}"), None
        ),
    )


async def _send_command(command: StoredCommand, engine: Engine) -> dict[str, Any]:
    return await engine.command(command.key, command.type, command.spec, command.id)


def _get_target(command: StoredCommand) -> _Target:
    index = command.spec.get("volumeIndex")
    # A check may take an hour, and touches only a copy of the volume.
    return _Target(command.key, command.location, ("copy", index) if command.type == VERIFY else index)
