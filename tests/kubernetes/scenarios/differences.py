"""What a cluster shows otherwise than a host, each by a name and with the reason; all else has to be the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tests.kubernetes.scenarios.runner import SEPARATOR, Transcript
from tests.kubernetes.scenarios.scenario import Scenario, list_scenarios

NOTHING = ""
"""The value of a line that one of both does not have."""


class Deviation(msgspec.Struct, frozen=True):
    """A line of a transcript whose value is not the same, or that only one of both has."""

    step: str
    path: str
    host: str
    cluster: str


class Difference(msgspec.Struct, frozen=True):
    """Deviations with one reason: those whose path and values match these patterns as a whole.

    ``text`` says to people what is different, and why.
    """

    name: str
    text: str
    path: str
    host: str = ".*"
    cluster: str = ".*"

    def explains(self, deviation: Deviation) -> bool:
        """Whether a deviation is of this kind."""
        pairs = ((self.path, deviation.path), (self.host, deviation.host), (self.cluster, deviation.cluster))
        return all(re.fullmatch(pattern, value, re.DOTALL) for pattern, value in pairs)


DIFFERENCES = (
    Difference(
        "not-enforced",
        "`NotEnforced` has the sentences of the engine: each names what it lacks itself.",
        r".* (status\.)?conditions\[NotEnforced\]\..*",
    ),
    Difference(
        "replaced-pods",
        "A replica that somebody ends from outside is started again on a host, under its name and with a restart more. "
        "On a cluster another pod takes its place.",
        r"(event )?workload/shop/web (Warning|Normal|replica|status\.versions|health|workload|status).*",
    ),
    Difference(
        "stopped-for-snapshots",
        "A host whose disk cannot copy files in use stops the replica for a snapshot. The driver of a cluster does "
        "not.",
        r"event (volumeset/shop/data Normal SnapshotStoppedReplica|workload/shop/db Normal Healthy).*",
    ),
    Difference(
        "late-executions",
        "A time that an execution skipped under `Forbid` is over on a host. On a cluster it comes late, once that "
        "execution has ended, if this is within 120 s.",
        r"(event )?workload/shop/steady "
        r"(status\.jobExecutions\[1\]|workload\.currentReplicaCount|replica |Normal Healthy).*",
    ),
    Difference(
        "hook-codes",
        "The event about a hook that failed has the exit code on a host. A kubelet does not tell it.",
        r"event workload/shop/web Warning PreStopFailed: .*",
    ),
)
"""The table: docs/kubernetes.md has the texts of those that a scenario meets."""


def compare_transcripts(host: Transcript, cluster: Transcript) -> list[Deviation]:
    """All lines that are not the same."""
    return [deviation for step in host for deviation in _compare_step(step, host[step], cluster.get(step, {}))]


def _compare_step(step: str, host: dict[str, str], cluster: dict[str, str]) -> Iterator[Deviation]:
    for path in sorted(host.keys() | cluster.keys()):
        # An event is all path, so that its presence is its value.
        values = [
            lines.get(path, NOTHING) if path not in lines or lines[path] else "there" for lines in (host, cluster)
        ]
        if values[0] != values[1]:
            yield Deviation(step, path, *values)


def name_difference(deviation: Deviation, allowed: list[str]) -> str:
    """The name of the difference that explains ``deviation``, among those that are ``allowed``; "" without one."""
    return next((each.name for each in DIFFERENCES if each.name in allowed and each.explains(deviation)), "")


def list_met_differences() -> list[Difference]:
    """The differences that scenarios meet, in the order of the table."""
    met = {name for scenario in list_scenarios() for name in scenario.differences}
    return [difference for difference in DIFFERENCES if difference.name in met]


def check_differences(scenario: Scenario, host: Transcript, cluster: Transcript) -> None:
    """AssertionError for a deviation that no difference of the scenario explains, and for one that is not met."""
    deviations = compare_transcripts(host, cluster)
    names = {deviation: name_difference(deviation, scenario.differences) for deviation in deviations}
    unnamed = [str(deviation) for deviation, name in names.items() if not name]
    assert not unnamed, "differences that have no name:\n" + "\n".join(unnamed)
    assert set(names.values()) == set(scenario.differences), "differences that the scenario does not meet any more"


def read_transcript(text: str) -> Transcript:
    """A transcript from its text."""
    transcript: Transcript = {}
    for line in text.splitlines():
        if line.startswith("# "):
            step = transcript[line[2:]] = {}
        elif line.startswith("event "):
            step[line] = ""
        elif line:
            path, _, value = line.partition(SEPARATOR)
            step[path] = value
    return transcript
