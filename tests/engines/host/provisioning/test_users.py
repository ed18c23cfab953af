"""Whom containers run as that name no user."""

from __future__ import annotations

import os
import pwd

import pytest

from reconciler.engines.host.runtimes.process.container_view import resolve_user
from reconciler.errors import EngineError
from tests.support.programs import only_root


@only_root("only root runs programs as somebody else")
def test_root_runs_containers_without_a_user_as_the_default_user() -> None:
    assert resolve_user(None, "nobody") == pwd.getpwnam("nobody").pw_uid
    assert resolve_user(None, "4711") == 4711
    assert (resolve_user(None, "root"), resolve_user(0, "nobody")) == (None, None)
    assert resolve_user(12, "nobody") == 12


@only_root("only root runs programs as somebody else")
def test_a_default_user_that_this_host_does_not_have_is_an_error() -> None:
    with pytest.raises(EngineError) as caught:
        resolve_user(None, "no-such-user")
    assert (caught.value.reason, caught.value.retry) == ("UserNotFound", True)
    assert "host.defaultUser" in str(caught.value)
    assert resolve_user(12, "no-such-user") == 12


def test_only_root_changes_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert resolve_user(None, "no-such-user") is None
    assert resolve_user(12, "nobody") == 12
