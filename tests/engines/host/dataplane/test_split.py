"""A split of requests by version: the weights of replicas, and the file with its percents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.engines.host.dataplane.split import Splits, checked_percents, server_weights
from reconciler.errors import EngineError
from reconciler.model.key import Key, Kind
from tests.support.cases import cases


@pytest.mark.parametrize("case", cases("dataplane/split.yaml"))
def test_replicas_get_the_share_of_their_version(case: dict[str, Any]) -> None:
    assert server_weights(case["percents"], case["versions"]) == case["weights"]


@pytest.mark.parametrize("percents", [{1: 50}, {1: 60, 2: 60}, {1: 110, 2: -10}, {}])
def test_percents_that_are_not_100_together_are_refused(percents: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="100 together"):
        checked_percents(percents)
    assert checked_percents(None) == {}


def test_a_split_outlasts_the_daemon_until_it_ends_or_its_workload_is_deleted(tmp_path: Path) -> None:
    file = tmp_path / "splits.json"
    web, api = (Key(Kind.WORKLOAD, "shop", name) for name in ("web", "api"))
    splits = Splits(file)
    assert splits.find(web) == ()
    splits.assign(web, {2: 10, 1: 90})
    splits.assign(api, {1: 0, 2: 100})
    assert Splits(file).find(web) == ((1, 90), (2, 10))
    splits.assign(web, None)
    assert (Splits(file).find(web), Splits(file).find(api)) == ((), ((1, 0), (2, 100)))
    splits.release(api)
    assert Splits(file).find(api) == ()
    file.write_text("{")
    assert Splits(file).find(api) == ()


def test_a_split_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    splits, key = Splits(tmp_path / "file" / "splits.json"), Key(Kind.WORKLOAD, "shop", "web")
    with pytest.raises(EngineError):
        splits.assign(key, {1: 100})
    assert splits.find(key) == ()
