"""`reconciler page`: a link to the page, or why there is none."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.cli import local_settings
from reconciler.cli.local_settings import Followed, write_settings
from reconciler.cli.page_links import read_base
from reconciler.daemon.lock import StateLock
from reconciler.settings import ApiSettings, load_settings
from tests.cli.test_sessions import golden
from tests.support.processes import free_ports, run
from tests.support.sandbox import DaemonSandbox

WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"api": {"address": "127.0.0.1:7400", "page": False}},
    {"api": {}},
    {"api": {"address": "127.0.0.1:7400"}},
)


def test_where_there_is_no_page_the_command_names_what_to_do(tmp_path: Path) -> None:
    shown = ""
    for number, settings in enumerate(WAYS):
        sandbox = DaemonSandbox(tmp_path / str(number), **settings)
        done = sandbox.run("page")
        assert (done.returncode, done.stdout) == (1, "")
        shown += f"$ reconciler page\n{done.stderr.replace(str(sandbox.state), 'STATE')}"
    golden("page.txt", shown)


@pytest.mark.parametrize(
    ("api", "base"),
    [
        ({"address": "127.0.0.1:7400"}, "http://reconciler.localhost:7400"),
        ({"address": "[::1]:7400"}, "http://reconciler.localhost:7400"),
        ({"address": "127.0.0.1:7400", "url": "https://page.example.com/"}, "https://page.example.com"),
        ({"address": "192.0.2.1:7400"}, "http://192.0.2.1:7400"),
    ],
)
def test_a_link_on_this_host_leads_to_a_name_that_no_workload_has(tmp_path: Path, api: Any, base: str) -> None:
    settings = load_settings(DaemonSandbox(tmp_path).settings_file)
    assert read_base(msgspec.structs.replace(settings, api=ApiSettings(**api))) == base


def test_two_that_begin_at_once_choose_two_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon of the first one does not listen yet when the second one chooses."""
    monkeypatch.setattr(local_settings, "_FIRST_PAGE_PORT", free_ports(1)[0])
    port = local_settings.choose_page_port()
    choose = f"module._FIRST_PAGE_PORT = {port}; print(module.choose_page_port())"
    second = run(["-c", f"from reconciler.cli import local_settings as module; {choose}"])
    assert (second.returncode, int(second.stdout) > port) == (0, True), second


def test_the_page_of_what_up_runs_keeps_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    # Those of a page may be taken by other tests at any moment.
    monkeypatch.setattr(local_settings, "_FIRST_PAGE_PORT", free_ports(1)[0])
    followed = Followed(str(tmp_path / "manifests.git"), branch="main", key=str(tmp_path / "manifests"))
    first = write_settings(followed, ["local"], "acme").read_text()
    api = load_settings(write_settings(followed, ["local"], "acme")).api
    assert api is not None
    host, _, port = api.address.rpartition(":")
    with socket.create_server((host, int(port))):
        lock = StateLock(followed.state)
        lock.acquire()  # as the daemon does that listens there
        assert write_settings(followed, ["local"], "acme").read_text() == first
        lock.release()
        other = followed._replace(key="other")
        assert f"127.0.0.1:{port}" not in write_settings(other, ["local"], "acme").read_text()
