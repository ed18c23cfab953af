"""Stores the usage of a location's workloads for Capacity AI, across restarts of the daemon and of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from reconciler.engines.host.autoscaling.capacity import History, applies, recommend_amount, record_usage
from reconciler.engines.host.autoscaling.metrics import Used
from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.engines.host.spec import WorkloadSpec
from reconciler.errors import EngineError
from reconciler.model.key import Key

Histories = dict[str, History]
"""The histories of one workload's containers, by container name."""

_decode = msgspec.json.Decoder(Histories).decode


class CapacityRecommender:
    """The histories of all workloads of a location, in one file each below ``root``.

    A file is written at the end of each slot of five minutes. A file that cannot be written or read costs only the
    history: recommendations are just information for users.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._histories: dict[Key, Histories] = {}

    def observe(self, wanted: WorkloadSpec, used: Mapping[ContainerId, Used], now: float) -> None:
        """Add the usage of a workload's containers in the last 15 seconds; ``now`` is monotonic time."""
        if not applies(wanted):
            self.forget(wanted.key)
            return
        before = self._of(wanted.key)
        after: Histories = {}
        for container in wanted.containers:
            uses = [use for place, use in used.items() if place.container == container.name]
            after[container.name] = record_usage(before.get(container.name), wanted.digest, uses, now)
        self._histories[wanted.key] = after
        if any(name not in before or before[name].slots != history.slots for name, history in after.items()):
            with suppress(EngineError):
                write_atomic(self._path(wanted.key), msgspec.json.encode(after), 0o600)

    def recommendations(self, wanted: WorkloadSpec) -> dict[str, tuple[int, int]]:
        """Recommended millicores and bytes for each container of a workload with enough history."""
        if not applies(wanted):
            return {}
        known = {name: each for name, each in self._of(wanted.key).items() if each.digest == wanted.digest}
        amounts = (
            (container.name, recommend_amount(known.get(container.name), container)) for container in wanted.containers
        )
        return {name: (amount.cpu, amount.memory) for name, amount in amounts if amount is not None}

    def forget(self, key: Key) -> None:
        """Forget a workload that is deleted or has Capacity AI off."""
        self._histories.pop(key, None)
        with suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def _of(self, key: Key) -> Histories:
        if key not in self._histories:
            self._histories[key] = {}
            with suppress(OSError, msgspec.DecodeError):
                self._histories[key] = _decode(self._path(key).read_bytes())
        return self._histories[key]

    def _path(self, key: Key) -> Path:
        return self._root / key.gvc / f"{key.name}.json"
