"""Each feature while another one is under way: no request is lost, nothing is destroyed, and the status is true."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import combinations_with_replacement
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.feature_pairs.features import FEATURES, IMAGE_FEATURES, NEEDS_DAEMON, NOT_TWICE
from tests.feature_pairs.harness import Containers, Feature, FeatureHarness, containers_here, open_harness
from tests.support.programs import only_root, tool

pytestmark = only_root("a disk of its own has to be mounted")


class Pair(NamedTuple):
    """The second feature begins while the first is under way."""

    first: str
    second: str


def pairs_of(features: Mapping[str, Feature]) -> list[Pair]:
    """Every two of ``features`` that can meet."""
    return [
        Pair(*sorted(pair, key=lambda name: (name not in NEEDS_DAEMON, [*features].index(name))))
        for pair in combinations_with_replacement(features, 2)
        if pair[0] != pair[1] or pair[0] not in NOT_TWICE
    ]


PAIRS = pairs_of(FEATURES)
ALL_FEATURES = FEATURES | IMAGE_FEATURES
CONTAINER_PAIRS = pairs_of(ALL_FEATURES)
SHORT = [
    Pair("open connection", "reload of the proxy"),
    Pair("rollout", "daemon killed"),
]
"""Those that show most, for every run of the tests; the long form has all."""


def cross(harness: FeatureHarness, pair: Pair) -> list[str]:
    """What does not hold after both features of ``pair``, the second begun while the first was under way."""
    try:
        with harness.traffic() as tallies:
            first, second = (ALL_FEATURES[name](harness) for name in pair)
            next(first)
            next(second)
            # What ends a daemon begins another one first: others may need it.
            for each in (second, first):
                next(each, None)
            harness.wait_until_done()
        return harness.check(tallies)
    except (AssertionError, OSError) as error:
        harness.revive()
        return [str(error)]


def play(path: Path, pairs: list[Pair], containers: Containers | None = None) -> None:
    """Play ``pairs`` one after the other in one harness, and report how many were covered."""
    tool("haproxy", "haproxy")
    faults, skipped, began = list[str](), 0, time.monotonic()
    every = PAIRS if containers is None else CONTAINER_PAIRS
    with open_harness(path, containers) as harness:
        for pair in pairs:
            if "clock jump" in pair and not harness.has_clock:
                skipped += 1
                continue
            found = [f"{pair.first} × {pair.second}: {fault}" for fault in cross(harness, pair)]
            print(f"{time.monotonic() - began:7.1f} s {pair.first} × {pair.second}", *found, sep="\n  ", flush=True)
            faults += found
    names = {name for pair in every for name in pair}
    print(f"{len(pairs) - skipped} of {len(every)} pairs of {len(names)} features are covered, {skipped} skipped")
    assert not faults, "\n".join(faults)


@pytest.mark.slow
def test_features_that_meet_often(tmp_path: Path) -> None:
    assert {*SHORT} <= {*PAIRS} | {Pair(pair.second, pair.first) for pair in PAIRS}
    play(tmp_path / "site", SHORT)


@pytest.mark.slow
def test_every_feature_meets_every_other(tmp_path: Path) -> None:
    play(tmp_path / "site", PAIRS)


@pytest.mark.slow
def test_every_feature_meets_every_other_in_containers(tmp_path: Path) -> None:
    with containers_here() as containers:
        play(tmp_path / "site", CONTAINER_PAIRS, containers)
