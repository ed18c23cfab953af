"""The commands on workloads, for every engine: their forms, strict parsing, and the check against the workload."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NoReturn

import msgspec

from reconciler.engines.command_spec import read_spec
from reconciler.engines.run_command import RUN, RunCronWorkload, check_run
from reconciler.engines.volumes import make_rejection
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Specification
from reconciler.model.suggest import find_closest_word
from reconciler.reasons import Reason

STOP = "stopReplica"


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
