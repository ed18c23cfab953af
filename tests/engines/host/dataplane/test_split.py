"""The weights of replicas in a split of requests by version."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.engines.host.dataplane.split import checked_percents, server_weights
from tests.support.cases import cases


@pytest.mark.parametrize("case", cases("dataplane/split.yaml"))
def test_replicas_get_the_share_of_their_version(case: dict[str, Any]) -> None:
    assert server_weights(case["percents"], case["versions"]) == case["weights"]


@pytest.mark.parametrize("percents", [{1: 50}, {1: 60, 2: 60}, {1: 110, 2: -10}, {}])
def test_percents_that_are_not_100_together_are_refused(percents: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="100 together"):
        checked_percents(percents)
    assert checked_percents(None) == {}
