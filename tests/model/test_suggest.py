"""Suggestions for an unknown word: the mistyped one, never another thing or the opposite."""

from __future__ import annotations

import pytest

from reconciler.model.suggest import find_closest_word

MEANT = {
    "cup": "cpu",
    "pcu": "cpu",
    "cpus": "cpu",
    "cp": "cpu",
    "url": "uri",
    "kin": "kind",
    "ssec": "spec",
    "descripton": "description",
    "minScal": "minScale",
    "standrd": "standard",
    "DB_HOSTS": "DB_HOST",
    "livenesProbe": "livenessProbe",
    "liveness_probe": "livenessProbe",
    "timeout": "timeoutSeconds",
    "inboundAllowCidrs": "inboundAllowCIDR",
    "readyProbe": "readinessProbe",
    "outbundAllowPort": "outboundAllowPort",
}
NOT_MEANT = {
    "gpu": "cpu",
    "inboundBlockedCIDR": "inboundAllowCIDR",
    "outboundDenyCIDR": "outboundAllowCIDR",
    "inboundAllowPort": "outboundAllowPort",
    "disabled": "enabled",
    "unused": "used",
    "inactive": "active",
    "maxReadySeconds": "minReadySeconds",
    "postStop": "preStop",
    "web-v1": "web-v2",
    "notReady": "Ready",
    "externalPorts": "internalPorts",
    "accountLink": "volumeLink",
}


@pytest.mark.parametrize("word", MEANT)
def test_a_slip_is_mended(word: str) -> None:
    assert find_closest_word(word, ["unlike", MEANT[word]]) == MEANT[word]


@pytest.mark.parametrize("word", NOT_MEANT)
def test_another_thing_is_not_proposed(word: str) -> None:
    assert find_closest_word(word, ["unlike", NOT_MEANT[word]]) == ""


def test_the_next_best_is_proposed_where_the_best_is_the_opposite() -> None:
    assert find_closest_word("inboundDenyCIDR", ["inboundAllowCIDR", "inboundDenyCIDRs"]) == "inboundDenyCIDRs"
