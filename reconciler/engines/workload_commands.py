"""The commands on workloads, for every engine: their forms, strict parsing, and the check against the workload."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

from reconciler.engines.command_spec import read_spec
from reconciler.engines.volumes import make_rejection
from reconciler.errors import RefusedError
from reconciler.model.finding import Finding
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Specification
from reconciler.model.suggest import find_closest_word
from reconciler.reasons import Reason

RUN, STOP = "runCronWorkload", "stopReplica"
MOST_SHOWN = 3
"""The most findings in a refusal."""


class OverridesRefused(RefusedError):
    """Overrides with which the workload would have the errors ``findings``, which can name other resources."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(refusal_text(findings))
        self.findings = findings


def refusal_text(findings: Sequence[Finding]) -> str:
    """The refusal of overrides because of ``findings``, each with its advice."""
    worded = [
        f"{finding.message}; {finding.suggestion}" if finding.suggestion else finding.message for finding in findings
    ]
    more = f"; and {len(worded) - MOST_SHOWN} more" if len(worded) > MOST_SHOWN else ""
    return f"the overrides are refused: {'; '.join(worded[:MOST_SHOWN])}{more}"


class EnvVar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A variable for one execution."""

    name: str
    value: str


class ContainerOverride(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The overrides of one container for one execution."""

    name: str
    command: str | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None


class RunCronWorkload(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Run a cron workload now (docs/platform/workload.md#runs-on-demand)."""

    location: str
    container_overrides: tuple[ContainerOverride, ...] = ()


class StopWorkloadReplica(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Stop a replica, which another one replaces (docs/platform/workload.md#stop-a-replica)."""

    location: str
    replica: str


WorkloadCommand = RunCronWorkload | StopWorkloadReplica

WORKLOAD_COMMANDS: Mapping[str, type[WorkloadCommand]] = {RUN: RunCronWorkload, STOP: StopWorkloadReplica}
"""The commands on workloads, with the form of their spec."""


def parse_workload_command(name: str, spec: Mapping[str, Any]) -> WorkloadCommand:
    """Parse a command on a workload. Raises EngineError for an unknown name or an invalid spec."""
    form = WORKLOAD_COMMANDS.get(name)
    if form is None:
        raise make_rejection(f"a workload has no command {name}; there are: {', '.join(WORKLOAD_COMMANDS)}")
    return read_spec(name, spec, form)


def check_run(key: Key, spec: Specification, ask: RunCronWorkload) -> int:
    """Check ``ask`` against the workload; returns the limit of its history. Raises EngineError if it is impossible."""
    if spec.type != "cron" or spec.job is None:
        raise make_rejection(f"{key} is a {spec.type} workload; only a cron workload can be run on demand")
    container_names = {container.name for container in spec.containers}
    names = [override.name for override in ask.container_overrides]
    if len(set(names)) < len(names):
        raise make_rejection("each container has one override at most; write all that changes in it into one")
    strange = sorted(set(names) - container_names)
    if strange:
        raise make_rejection(
            f"{key} has no container {', '.join(strange)}; it has: {', '.join(sorted(container_names))}"
        )
    return spec.job.history_limit


def apply_overrides(manifest: Mapping[str, Any], ask: RunCronWorkload) -> dict[str, Any]:
    """``manifest``, of a workload, with the overrides of ``ask``: what the execution runs.

    Variables of an override win over those of the same name.
    """
    overrides = {override.name: override for override in ask.container_overrides}
    spec = dict(manifest.get("spec") or {})
    spec["containers"] = [
        _with_override(container, overrides[container["name"]]) if container["name"] in overrides else container
        for container in spec.get("containers") or ()
    ]
    return {**manifest, "spec": spec}


def _with_override(container: Mapping[str, Any], override: ContainerOverride) -> dict[str, Any]:
    changed = dict(container)
    if override.command is not None:
        changed["command"] = override.command
    if override.args is not None:
        changed["args"] = list(override.args)
    if override.env is not None:
        names = {variable.name for variable in override.env}
        others = [variable for variable in container.get("env") or () if variable["name"] not in names]
        changed["env"] = [*others, *({"name": variable.name, "value": variable.value} for variable in override.env)]
    return changed


def check_workload_command(key: Key, spec: Specification, ask: WorkloadCommand) -> None:
    """Check ``ask`` against the workload. Raises EngineError if it is impossible."""
    if isinstance(ask, RunCronWorkload):
        check_run(key, spec, ask)
    elif spec.type == "cron":
        raise make_rejection(f"{key} is a cron workload: nothing replaces a replica of an execution")


def refuse_missing_replica(key: Key, name: str, names: Collection[str]) -> NoReturn:
    """Refuse a command on the replica ``name``, which is not among ``names``. Raises EngineError."""
    if not names:
        raise make_rejection(f"{key} has no replica now", Reason.NOT_FOUND)
    near = find_closest_word(name, names)
    hint = f"did you mean {near}?" if near else f"it has {', '.join(sorted(names))}"
    raise make_rejection(f"{key} has no replica {name}; {hint}", Reason.NOT_FOUND)
