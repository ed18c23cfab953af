"""A scenario: steps of people and of programs, and what each of them leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.support.cases import CASES

FOLDER = CASES / "scenarios"


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a resource shall be like before the next step; a field that is left out may be anything.

    ``ready`` and ``replicas`` count replicas, those that end included; ``restarts`` counts restarts of containers;
    ``executions`` are the states of all of them, the oldest first. ``message`` is a pattern in its state, ``event`` one
    in an event of the step.
    """

    health: str | None = None
    version: int | None = None
    ready: int | None = None
    replicas: int | None = None
    restarts: int | None = None
    executions: list[str] | None = None
    message: str | None = None
    event: str | None = None
    gone: bool = False


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens at once, and what is waited for then.

    ``push`` has manifests by path, None deletes the file. ``secrets`` are new contents of files of secrets. ``behave``
    sets what the replicas of a workload do from now on, ``hang`` lets those that run now fail their liveness probe
    until they are restarted, ``exit`` lets them end with a code. ``stop`` ends one replica of a workload. ``use`` sets
    the CPU that each of its replicas uses, in millicores. ``run`` has command lines, which come first; ``due`` has cron
    workloads whose time comes. ``restart_daemon`` lets another daemon take over.
    """

    step: str
    push: dict[str, list[dict[str, Any]] | None] = {}
    secrets: dict[str, str] = {}
    behave: dict[str, dict[str, Any]] = {}
    hang: list[str] = []
    exit: dict[str, int] = {}
    stop: list[str] = []
    use: dict[str, int] = {}
    run: list[str] = []
    due: list[str] = []
    restart_daemon: bool = False
    until: dict[str, Target] = {}


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A story of workloads; ``differences`` are the names of those that a cluster shows in it.

    It is ``slow`` if it waits for a minute to pass, or longer.
    """

    about: str
    steps: list[Step]
    differences: list[str] = []
    slow: bool = False
    name: str = ""

    @property
    def timed(self) -> bool:
        """Whether the times of schedules come."""
        return any(step.due for step in self.steps)

    @property
    def measured(self) -> bool:
        """Whether the usage of replicas matters."""
        return any(step.use for step in self.steps)

    @property
    def file(self) -> Path:
        """Where it is written."""
        return FOLDER / f"{self.name}.yaml"

    @property
    def transcript_file(self) -> Path:
        """What people see of it on the host."""
        return FOLDER / f"{self.name}.txt"


def read_scenario(path: Path) -> Scenario:
    """The scenario of a file. Raises msgspec.ValidationError."""
    content = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    return msgspec.convert({**content, "name": path.stem}, Scenario)


def list_scenarios() -> list[Scenario]:
    """All scenarios, by name."""
    return [read_scenario(path) for path in sorted(FOLDER.glob("*.yaml"))]
