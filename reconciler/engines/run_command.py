"""The command ``runCronWorkload``, for every engine: its form, and the check against the workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from reconciler.engines.volumes import make_rejection
from reconciler.errors import RefusedError
from reconciler.model.finding import Finding
from reconciler.model.key import Key
from reconciler.model.kinds.workload import Specification

RUN = "runCronWorkload"
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
