"""The cluster that tests may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kubernetes import KUBECONFIG, find_test_kubeconfig


def test_only_the_named_cluster_is_used(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("{}")
    others = {"KUBECONFIG": str(file), "HOME": str(tmp_path)}
    assert find_test_kubeconfig({**others, KUBECONFIG: str(file)}) == file
    for named in ({}, {KUBECONFIG: ""}, {KUBECONFIG: "kubeconfig"}, {KUBECONFIG: str(tmp_path / "missing")}):
        with pytest.raises(ValueError, match=KUBECONFIG):
            find_test_kubeconfig({**others, **named})
