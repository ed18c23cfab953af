"""A split of requests by version: its percents in a file, and the weight of each replica by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from math import gcd, lcm
from pathlib import Path

import msgspec

from reconciler.engines.host.disk.atomic import write_atomic
from reconciler.errors import EngineError
from reconciler.model.key import Key

MOST_WEIGHT = 256
"""The greatest weight of a server."""

WHOLE = 100

_decode = msgspec.json.Decoder(dict[str, dict[int, int]]).decode


class Splits:
    """The splits of one location; ``file`` has them, for every data plane and every daemon."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._percents: dict[str, dict[int, int]] = {}
        with suppress(OSError, msgspec.DecodeError):
            self._percents = _decode(file.read_bytes())

    def find(self, key: Key) -> tuple[tuple[int, int], ...]:
        """The versions of ``key`` with their percents; empty without a split."""
        return tuple(self._percents.get(f"{key.gvc}/{key.name}", {}).items())

    def assign(self, key: Key, percents: Mapping[int, int] | None) -> None:
        """Give each version of ``key`` its percent from now on; None ends the split.

        Raises ValueError unless the percents are 100 together, and EngineError if the file cannot be written.
        """
        checked = checked_percents(percents)
        others = {name: shares for name, shares in self._percents.items() if name != f"{key.gvc}/{key.name}"}
        splits = others | ({f"{key.gvc}/{key.name}": checked} if checked else {})
        if splits != self._percents:
            write_atomic(self._file, msgspec.json.encode(splits), 0o600)
            self._percents = splits

    def release(self, key: Key) -> None:
        """Forget the split of a deleted workload."""
        with suppress(EngineError):
            self.assign(key, None)


def server_weights(percents: Mapping[int, int], versions: Mapping[str, int]) -> dict[str, int]:
    """The weight of each replica of ``versions`` (name → version) whose version gets requests.

    The replicas of one version share its percent. They are exact up to the greatest weight and rounded beyond it, and
    each is at least 1. A version without replicas leaves its percent to the others, in proportion. Without
    ``percents`` all replicas have the weight 1.
    """
    if not percents:
        return dict.fromkeys(versions, 1)
    served = {name: version for name, version in versions.items() if percents.get(version)}
    counts = Counter(served.values())
    common = lcm(*counts.values())
    whole = {version: percents[version] * common // count for version, count in counts.items()}
    divisor = max(gcd(*whole.values()), 1)
    most = max(whole.values(), default=0) // divisor
    weights = {version: share // divisor for version, share in whole.items()}
    if most > MOST_WEIGHT:
        weights = {version: max(round(weight * MOST_WEIGHT / most), 1) for version, weight in weights.items()}
    return {name: weights[version] for name, version in served.items()}


def checked_percents(percents: Mapping[int, int] | None) -> dict[int, int]:
    """The percents of a split; empty for None, which ends it. Raises ValueError unless they are 100 together."""
    if percents is None:
        return {}
    if min(percents.values(), default=0) < 0 or sum(percents.values()) != WHOLE:
        raise ValueError(f"the percents of a split are 0 or more and 100 together: {dict(percents)}")
    return dict(sorted(percents.items()))
