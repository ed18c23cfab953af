"""A split of requests by version: from the percent of each version to the weight of each replica."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import gcd, lcm

MOST_WEIGHT = 256
"""The greatest weight of a server."""

WHOLE = 100


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
