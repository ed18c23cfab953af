"""Commands on workloads and volume sets, as operators request them: rows in the records, which the daemon performs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from reconciler.clock import Clock
from reconciler.documents.scalars import ScalarProblem, parse_plain_scalar
from reconciler.engines.command_spec import MistypedSpec
from reconciler.engines.command_types import COMMANDS, check_command, is_text, without_secrets
from reconciler.engines.plugin import RECORDED
from reconciler.engines.volume_commands import MAKING_ROOM, check_expiration
from reconciler.errors import EngineError, NotFoundError, RefusedError, UsageError
from reconciler.model.key import Key, Kind
from reconciler.model.record import Record
from reconciler.queries.existence import check_present, did_you_mean
from reconciler.reasons import Reason
from reconciler.records.reserve import retry_with_reserve
from reconciler.records.store import Records
from reconciler.records.tables.commands import CommandStage, NewCommand, StoredCommand
from reconciler.settings import Settings

MAX_OPEN = 100
"""The most open commands on one resource: more are a program that repeats itself."""
EVERYWHERE = "runCronWorkload"
"""The command that is for all locations if it names none."""

_QUOTES = "\"'"


def parse_fields(kind: Kind, name: str, words: Sequence[str]) -> dict[str, Any]:
    """The spec in ``words``: ``key=value``, with dots between nested keys and YAML scalars as values.

    Raises UsageError for a word of another form.
    """
    spec: dict[str, Any] = {}
    for word in words:
        path, sign, text = word.partition("=")
        keys = path.split(".", 1)
        if not sign or not all(keys):
            raise UsageError("write each field of the command as key=value, such as volumeIndex=0")
        mapping = spec
        for key in keys[:-1]:
            mapping = mapping.setdefault(key, {})
        if not isinstance(mapping, dict) or keys[-1] in mapping:
            raise UsageError(f"{path} is written twice")
        mapping[keys[-1]] = _parse_scalar(path, text, text_field=is_text(kind, name, keys))
    return spec


def _parse_scalar(path: str, text: str, *, text_field: bool) -> Any:
    if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]:
        return text[1:-1]
    if text_field:
        return text
    value = parse_plain_scalar(text)
    if isinstance(value, ScalarProblem):
        raise UsageError(f"{path}: {value.message}; {value.suggestion}")
    return value


class ResourceCommands:
    """Commands on one set of records; ``by`` names the operator. All raise RefusedError and RecordsError."""

    def __init__(self, settings: Settings, records: Records, clock: Clock, by: str) -> None:
        self._settings = settings
        self._records = records
        self._clock = clock
        self._by = by

    def prepare(self, key: Key, name: str, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Check the command ``name`` on ``key``; returns its spec for each location that it is for.

        Raises UsageError for what is typed wrong, and RefusedError for what cannot be done.
        """
        commands = COMMANDS.get(key.kind)
        if commands is None:
            kinds = " and ".join(f"{kind}s" for kind in COMMANDS)
            raise UsageError(f"a {key.kind} takes no commands; {kinds} do")
        if name not in commands:
            hint = did_you_mean(name, commands) or f"; there are: {', '.join(commands)}"
            raise UsageError(f"a {key.kind} has no command {name}{hint}")
        check_present(self._records, key)
        self._check_overrides(key, name, spec)
        specs = []
        for record in self._targets(key, name, spec.get("location")):
            mapping = {"location": record.location, **spec}
            with _convert_refusals():
                check_command(record, name, mapping)
                check_expiration(name, mapping, self._clock.now())
            specs.append(mapping)
        return specs

    def _check_overrides(self, key: Key, name: str, spec: Mapping[str, Any]) -> None:
        """Check the containers with the overrides of ``spec``, by all rules of manifests."""
        if key.kind is not Kind.WORKLOAD or not spec.get("containerOverrides"):
            return
        from reconciler.operations.override_check import OverrideCheck, overridden_manifest

        for record in self._records.applied.get(key)[:1]:
            with _convert_refusals():
                check_command(record, name, {"location": record.location, **spec})
                body = msgspec.json.decode(record.body)
                manifest = overridden_manifest(key, body, name, spec)
            if manifest is not None:
                OverrideCheck(self._settings, self._records, self._clock).check(key, body, manifest)

    def request(self, key: Key, name: str, specs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Add a command for each of ``specs``; returns their ids. One that makes room may use the reserved room."""
        if name not in MAKING_ROOM:
            return self._request(key, name, specs)
        return retry_with_reserve(self._records.reserve, lambda: self._request(key, name, specs))

    def _request(self, key: Key, name: str, specs: Sequence[Mapping[str, Any]]) -> list[str]:
        with self._records.transaction():
            if len(self._records.commands.open(key)) + len(specs) > MAX_OPEN:
                raise RefusedError(f"{MAX_OPEN} commands on {key} are still to be performed; wait for them")
            rows = [NewCommand(key, spec["location"], name, spec, self._by) for spec in specs]
            return [self._records.commands.add(row) for row in rows]

    def cancel(self, key: Key, name: str) -> str:
        """Cancel the pending command with the id ``name``; returns the message for the operator."""
        with self._records.transaction():
            command = self._records.commands.get(name)
            if command is None or command.key != key:
                raise NotFoundError(f"{key} has no command {name}; see: reconciler command {key}")
            if command.stage is not CommandStage.PENDING:
                raise RefusedError(f"the command {name} is {command.stage}; only a pending one can be cancelled")
            cancel_command(self._records, command, self._by)
        if self._records.needs_checkpoint():  # the command may have had secrets, and this process may do no upkeep
            self._records.checkpoint()
        return f"the command {name} is cancelled"

    def needs_daemon(self, command: StoredCommand) -> bool:
        """Whether only a daemon performs it, and no `reconciler apply`."""
        bound = self._settings.locations.get(command.location)
        return bound is not None and bound.engine != RECORDED

    def _targets(self, key: Key, name: str, location: object) -> list[Record]:
        """The records of ``key`` that the command is for: at ``location``, at the only one, or at all."""
        here = [record for record in self._records.applied.get(key) if record.location in self._settings.locations]
        places = [record.location for record in here]
        if not here:
            raise RefusedError(f"{key} is not applied at a location of this host; see: reconciler describe {key}")
        if location is None:
            if len(here) > 1 and name != EVERYWHERE:
                raise RefusedError(f"{key} is at {', '.join(places)}; name one with location=NAME")
            return here
        if location not in places:
            hint = did_you_mean(str(location), places) or f"; it is at {', '.join(places)}"
            raise RefusedError(f"{key} is not at {location} on this host{hint}")
        return [record for record in here if record.location == location]


@contextmanager
def _convert_refusals() -> Iterator[None]:
    """Turn what an engine would refuse into the refusal of the request."""
    try:
        yield
    except MistypedSpec as error:
        raise UsageError(str(error)) from None
    except EngineError as error:
        raise RefusedError(str(error)) from None


def cancel_command(records: Records, command: StoredCommand, by: str) -> None:
    """Cancel a pending command in the open transaction, with an event."""
    spec = without_secrets(command.spec)
    records.commands.finish(command.id, CommandStage.CANCELLED, [f"{by} cancelled it"], spec)
    records.events.append(command.key, Reason.COMMAND_CANCELLED, f"{by}: {command.type}", location=command.location)
