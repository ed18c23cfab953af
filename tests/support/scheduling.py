"""The tests of each of several workers: some workers begin with tests that wait, the others with tests that compute.

A worker that has done its part takes tests from the end of another's. Tests that wait would keep no core busy if they
came one after another at the end, and would keep all workers from computing if they came at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from tests.project.tree import modules

WAITING = {
    "tests/api/test_conformance.py": 70,
    "tests/cli/test_apply_wait.py": 20,
    "tests/cli/test_exec.py": 6,
    "tests/cli/test_readers.py": 8,
    "tests/cli/test_top.py": 7,
    "tests/crash/test_kill_executions.py": 3,
    "tests/crash/test_kill_on_host.py": 10,
    "tests/daemon/test_commands.py": 5,
    "tests/daemon/test_converted_projects.py": 9,
    "tests/daemon/test_data_rollback.py": 6,
    "tests/daemon/test_host.py": 30,
    "tests/daemon/test_host_full_disk.py": 14,
    "tests/daemon/test_host_trouble.py": 25,
    "tests/daemon/test_lock.py": 4,
    "tests/daemon/test_loop.py": 4,
    "tests/daemon/test_loop_drift.py": 5,
    "tests/daemon/test_loop_engine_trouble.py": 5,
    "tests/daemon/test_loop_moves.py": 4,
    "tests/daemon/test_loop_secrets.py": 3,
    "tests/daemon/test_loop_trouble.py": 11,
    "tests/daemon/test_lost_state.py": 4,
    "tests/daemon/test_no_data_lost.py": 6,
    "tests/daemon/test_outage.py": 7,
    "tests/daemon/test_reload.py": 13,
    "tests/daemon/test_restart.py": 10,
    "tests/daemon/test_traces.py": 7,
    "tests/daemon/test_volume_approval.py": 4,
    "tests/daemon/test_watched_files.py": 5,
    "tests/docs/test_demo.py": 9,
    "tests/docs/test_guides.py": 4,
    "tests/editors/test_completion.py": 6,
    "tests/engines/host/dataplane/acme/test_issuer.py": 8,
    "tests/engines/host/dataplane/acme/test_served.py": 13,
    "tests/engines/host/dataplane/haproxy/test_choice.py": 6,
    "tests/engines/host/dataplane/haproxy/test_http2.py": 8,
    "tests/engines/host/dataplane/haproxy/test_ingress.py": 40,
    "tests/engines/host/dataplane/haproxy/test_large_map.py": 2,
    "tests/engines/host/dataplane/haproxy/test_real.py": 22,
    "tests/engines/host/dataplane/haproxy/test_runtime.py": 8,
    "tests/engines/host/dataplane/haproxy/test_secure_routes.py": 3,
    "tests/engines/host/dataplane/haproxy/test_split.py": 7,
    "tests/engines/host/dataplane/haproxy/test_unit.py": 4,
    "tests/engines/host/dataplane/load/test_changes.py": 2,
    "tests/engines/host/dataplane/test_builtin.py": 5,
    "tests/engines/host/runtimes/podman/test_stores.py": 6,
    "tests/engines/host/probes/test_forms.py": 9,
    "tests/engines/host/runtimes/process/test_ending.py": 6,
    "tests/engines/host/runtimes/process/test_limits.py": 5,
    "tests/engines/host/runtimes/process/test_session.py": 11,
    "tests/engines/host/snapshot_export/test_restic.py": 5,
    "tests/engines/host/volumes/test_images.py": 12,
    "tests/engines/test_contract.py": 20,
    "tests/platform_cli/test_cases.py": 20,
    "tests/records/test_restoring.py": 9,
    "tests/soak/test_soak.py": 8,
    "tests/source/test_remote.py": 10,
    "tests/source/test_signature.py": 7,
    "tests/status/test_writer.py": 6,
}
"""Modules that wait for processes, disks or clocks for 2 s or more, and the seconds that their tests take."""

PODMAN_SECONDS = 60
"""Seconds that a module with the one Podman service of this machine counts for."""


def arranged(items: Sequence[pytest.Item], workers: int) -> list[list[pytest.Item]]:
    """A part of ``items`` for each of ``workers``; those of WAITING begin the parts of half of them.

    Modules that need the Podman service come first, in one part: a second worker would wait for it in vain.
    """
    waiting: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    podman, rest = [], []
    for item in items:
        path = item.nodeid.partition("::")[0]
        if _uses_podman(item):
            podman.append(item)
        elif path in WAITING:
            waiting[path].append(item)
        else:
            rest.append(item)
    rest.sort(key=_parses_source, reverse=True)
    parts = [podman, *([] for _ in range((workers - 1) // 2))]
    seconds = [PODMAN_SECONDS * bool(podman), *(0 for _ in parts[1:])]
    for path in sorted(waiting, key=lambda path: (-WAITING[path], path)):
        shortest = seconds.index(min(seconds))
        parts[shortest] += waiting[path]
        seconds[shortest] += WAITING[path]
    _fill(parts, rest, workers)
    return parts


def _fill(parts: list[list[pytest.Item]], rest: list[pytest.Item], workers: int) -> None:
    """Add to ``parts``, and as new parts, what is in ``rest``, from its end, so that ``workers`` have equal shares."""
    parts += [[] for _ in range(workers - len(parts))]
    for number, part in enumerate(parts, start=1):
        missing = (sum(map(len, parts[number - 1 :])) + len(rest)) // (workers - number + 1) - len(part)
        begin = 0 if number == workers else max(0, len(rest) - max(0, missing))
        part += rest[begin:]
        del rest[begin:]


def _parses_source(item: pytest.Item) -> bool:
    """Whether ``item`` needs the syntax trees of the package: one worker parses them, at the beginning of its part."""
    return getattr(getattr(item, "module", None), "modules", None) is modules


def _uses_podman(item: pytest.Item) -> bool:
    module = getattr(item, "module", None)
    return hasattr(module, "podman_service") or hasattr(module, "PodmanService")
