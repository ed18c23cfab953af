"""Tokens of workloads: made once, stable, readable by the daemon alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from reconciler.engines.host.provisioning.tokens import WorkloadTokens
from reconciler.errors import EngineError
from reconciler.model.key import Key

WEB, API = Key.parse("workload/shop/web"), Key.parse("workload/shop/api")


def test_a_token_is_made_once_and_is_each_workloads_own(tmp_path: Path) -> None:
    token = WorkloadTokens(tmp_path / "tokens", "here").of(WEB)
    assert len(token) >= 40
    assert WorkloadTokens(tmp_path / "tokens", "here").of(WEB) == token
    assert WorkloadTokens(tmp_path / "tokens", "here").of(API) != token
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in found) == ["api", "web"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    assert stat.S_IMODE((tmp_path / "tokens" / "shop").stat().st_mode) == 0o700


def test_a_workload_that_is_made_anew_has_another(tmp_path: Path) -> None:
    tokens = WorkloadTokens(tmp_path, "here")
    token = tokens.of(WEB)
    tokens.forget(WEB)
    tokens.forget(WEB)
    assert list(tmp_path.iterdir()) == []
    assert tokens.of(WEB) != token


def test_an_empty_file_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "web").touch(mode=0o600)
    assert WorkloadTokens(tmp_path, "here").of(WEB)


def test_a_token_that_cannot_be_saved_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("in the way")
    with pytest.raises(EngineError):
        WorkloadTokens(tmp_path, "here").of(WEB)
