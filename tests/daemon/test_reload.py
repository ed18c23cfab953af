"""Settings that change while the daemon runs are taken over whole, or refused and reported."""

from __future__ import annotations

import asyncio
import io
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler import logs
from reconciler.clock import SystemClock
from reconciler.daemon.lock import StateLock
from reconciler.daemon.reload import Reload
from reconciler.daemon.service import DaemonService
from reconciler.pipeline.runner import Runner
from reconciler.records.store import Records
from reconciler.records.tables.conditions import HOST
from reconciler.settings import Settings, load_settings
from tests.support.clock import FakeClock
from tests.support.git import GitRepo
from tests.support.sandbox import DaemonProcess, DaemonSandbox, ServiceManager, eventually, workload

MORE = {"more/gvc.yaml": "kind: gvc\nname: more\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"}


@pytest.fixture
def sandbox(tmp_path: Path) -> DaemonSandbox:
    """A sandbox with a second repository that no source follows yet."""
    GitRepo.create(tmp_path / "more.git", MORE)
    sandbox = DaemonSandbox(tmp_path)
    sandbox.configure(sources=[sandbox.source(interval="1h")])
    return sandbox


def ready(sandbox: DaemonSandbox) -> None:
    """Wait for the first run."""
    eventually(lambda: "workload/shop/api@there" in sandbox.recorded(), "the first commit is applied")


def taken(daemon: DaemonProcess, count: int = 1) -> None:
    """Wait until settings were taken over as often."""
    eventually(lambda: len(daemon.logged("settings", loaded=True)) >= count, "the settings are taken over")


def goes_on(sandbox: DaemonSandbox, daemon: DaemonProcess, commit: str) -> None:
    """``commit`` is applied after a SIGHUP."""
    daemon.signal(signal.SIGHUP)
    eventually(lambda: sandbox.applied(commit), "it works on")


def host(sandbox: DaemonSandbox) -> str:
    """The condition of the settings: ``true``, or ``false`` with the message."""
    condition = sandbox.condition("SettingsLoaded", HOST)
    return f"{condition} {sandbox.condition_message('SettingsLoaded', HOST)}".strip()


def test_a_source_that_is_added_is_followed_and_one_that_is_removed_leaves_its_resources(
    sandbox: DaemonSandbox,
) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox)
        sandbox.configure(sources=[sandbox.source(interval="1h"), sandbox.source("more", interval="1h")])
        eventually(lambda: "gvc/more" in sandbox.recorded(), "the new source is applied")
        eventually(
            lambda: "gvc/more" in sandbox.status("_org/gvc/more.yaml", GitRepo(sandbox.path / "more.git")), "status"
        )
        sandbox.configure(sources=[sandbox.source("more", interval="1h")])
        taken(daemon, 2)
        commit = sandbox.repo.commit({"shop/api.yaml": None})
        daemon.signal(signal.SIGHUP)
        eventually(
            lambda: [run for run in daemon.logged("reconciled") if "SIGHUP" in run["reason"]], "a run over what is left"
        )
        assert "workload/shop/api@here" in sandbox.recorded()
        assert not sandbox.applied(commit)
        assert daemon.process.poll() is None
        assert daemon.stop() == 0


def test_commits_to_an_added_source_wake_and_are_polled(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox)
        sandbox.configure(sources=[sandbox.source(interval="1h"), sandbox.source("more", interval="500ms")])
        daemon.signal(signal.SIGHUP)
        eventually(lambda: "gvc/more" in sandbox.recorded(), "the new source is applied")
        GitRepo(sandbox.path / "more.git").commit({"more/web.yaml": workload("web")})
        eventually(lambda: "workload/more/web@here" in sandbox.recorded(), "a commit to it is applied")
        commit = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        eventually(lambda: sandbox.applied(commit), "the first source is still watched")


def test_a_location_that_is_bound_is_known_at_once(sandbox: DaemonSandbox) -> None:
    sandbox.configure(locations={"here": {"engine": "recorded"}})
    with sandbox.daemon() as daemon:
        eventually(lambda: sandbox.condition("Ready") == "false InvalidRevision", "the other location is unknown")
        sandbox.configure(locations={"here": {"engine": "recorded"}, "there": {"engine": "recorded"}})
        ready(sandbox)
        eventually(
            lambda: [run for run in daemon.logged("reconciled") if "settings" in run["reason"]],
            "a run for the settings",
        )


def test_faulty_settings_are_reported_once_and_the_former_ones_stay(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox)
        good = sandbox.settings_file.read_text()
        sandbox.configure(parallel=0)
        eventually(lambda: host(sandbox).startswith("false InvalidSettings"), "the condition reports it")
        assert "`0` is out of bounds" in host(sandbox)
        for number in range(3):
            goes_on(sandbox, daemon, sandbox.repo.commit({"shop/web.yaml": workload("web", 7000 + number)}))
        assert len(daemon.logged("settings", loaded=False)) == 1
        with sandbox.records() as records:
            events = [each for each in records.events.list(limit=1000) if each.reason == "SettingsRefused"]
        assert len(events) == 1
        sandbox.settings_file.write_text(good)
        eventually(lambda: host(sandbox) == "true Loaded", "the former file is good again")
        eventually(lambda: len(daemon.logged("settings", loaded=True)) == 1, "the log reports it too")


def test_one_fault_anywhere_leaves_all_as_it_was(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox)
        odd = sandbox.source("odd", verify={"signed": "tag", "allowedSigners": "signers"})
        sandbox.configure(sources=[sandbox.source(interval="1h"), sandbox.source("more"), odd])
        eventually(lambda: "set its tag" in host(sandbox), "the condition reports it")
        daemon.signal(signal.SIGHUP)
        eventually(lambda: [run for run in daemon.logged("reconciled") if "SIGHUP" in run["reason"]], "a run")
        assert "gvc/more" not in sandbox.recorded()
        assert daemon.logged("settings", loaded=True) == []


def test_the_state_directory_stays_where_it_is(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox)
        former = sandbox.state
        sandbox.configure(state=str(sandbox.path / "elsewhere"))
        daemon.signal(signal.SIGHUP)
        eventually(
            lambda: f"cannot change while the daemon runs ({former}): restart it" in host(sandbox), "it is reported"
        )
        assert not (sandbox.path / "elsewhere").exists()


def test_sighup_reloads_the_settings_and_starts_a_run(sandbox: DaemonSandbox) -> None:
    with ServiceManager(sandbox.path) as systemd, sandbox.daemon(**systemd.environ) as daemon:
        ready(sandbox)
        sandbox.configure(log={"format": "json", "level": "warning"}, parallel=3)
        daemon.signal(signal.SIGHUP)
        taken(daemon)
        eventually(lambda: "RELOADING=1" in systemd.notifications(), "systemd is notified")
        notifications = systemd.notifications()
        eventually(
            lambda: "READY=1" in systemd.notifications()[notifications.index("RELOADING=1") :], "and notified again"
        )
        commit = sandbox.repo.commit({"shop/web.yaml": workload("web")})
        daemon.signal(signal.SIGHUP)
        eventually(lambda: sandbox.applied(commit), "it polls")
        assert daemon.logged("reconciled", revision=f"main@sha1:{commit}") == [], "the new level of the log holds"
        assert "STOPPING=1" not in systemd.notifications()
        assert daemon.stop() == 0


def test_a_request_is_answered_across_a_change_of_settings(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox)
        for number in range(3):
            sandbox.configure(parallel=4 + number)
            daemon.signal(signal.SIGHUP)
            sandbox.repo.commit({"shop/web.yaml": workload("web", 7000 + number)})
            asked = sandbox.run("apply")
            assert (asked.returncode, asked.stderr) == (0, "")
        assert sandbox.recorded()["workload/shop/web@here"].version >= 1
        assert daemon.stop() == 0


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    opened = Records.open(tmp_path / "state" / "records.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def reload(tmp_path: Path, records: Records) -> Reload:
    """The reload of settings that were just loaded."""
    sandbox = DaemonSandbox(tmp_path)
    return Reload(sandbox.settings_file, load_settings(sandbox.settings_file), records)


def make(records: Records) -> Callable[[Settings], Runner]:
    return lambda settings: Runner(settings, records, FakeClock())


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path, records: Records, reload: Reload) -> None:
    file = tmp_path / "settings.yaml"
    whole = file.read_text()
    assert reload.due(), "a change before the first check is not missed"
    assert reload.try_reload(make(records)) is None
    for length in range(0, len(whole), 50):
        file.write_text(whole[:length])
        assert not reload.due()
    file.write_text(whole.replace("acme", "acme2"))
    assert [reload.due(), reload.due()] == [False, True]
    runner = reload.try_reload(make(records))
    assert runner is not None
    assert runner.settings.org == "acme2"
    assert not reload.due()


def test_a_missing_settings_file_is_reported_until_it_is_back(tmp_path: Path, records: Records, reload: Reload) -> None:
    file = tmp_path / "settings.yaml"
    whole = file.read_text()
    file.unlink()
    assert [reload.due(), reload.due()] == [False, True]
    assert reload.try_reload(make(records)) is None
    assert not reload.due()
    [condition] = records.conditions.get(HOST)
    assert "cannot read the settings" in condition.message
    file.write_text(whole)
    assert [reload.due(), reload.due()] == [False, True]
    assert reload.try_reload(make(records)) is None
    assert [each.status for each in records.conditions.get(HOST)] == [True]


def test_a_password_in_faulty_settings_appears_nowhere(
    tmp_path: Path, records: Records, reload: Reload, capsys: Any
) -> None:
    file = tmp_path / "settings.yaml"
    url = "https://ada:s3cret-pass@example.com/m.git"
    file.write_text(f"org: acme\nsources: [{{name: main, url: '{url}', branch: [{url}]}}]\n")
    assert reload.try_reload(make(records)) is None
    messages = [each.message for each in (*records.conditions.get(HOST), *records.events.list())]
    out = capsys.readouterr()
    assert len(messages) == 2
    assert "s3cret" not in f"{messages} {out.out} {out.err}"


class LateReload(Reload):
    """Its file changes right after the first look, which is before the file is watched."""

    def due(self) -> bool:
        """Look, and let the file change once."""
        answer = super().due()
        text = self.file.read_text()
        if "acme2" not in text:
            self.file.write_text(text.replace("acme", "acme2"))
        return answer


async def test_a_change_before_the_file_is_watched_is_taken_over(tmp_path: Path, records: Records) -> None:
    log = io.StringIO()
    logs.configure_logging("json", "info", log)
    sandbox = DaemonSandbox(tmp_path)
    settings, clock = load_settings(sandbox.settings_file), SystemClock()
    reload = LateReload(sandbox.settings_file, settings, records)
    settings.state.mkdir(parents=True, exist_ok=True)
    with StateLock(settings.state) as lock:
        service = DaemonService(Runner(settings, records, clock), clock, None, reload, lock)
        running = asyncio.create_task(service.run())
        async with asyncio.timeout(60):
            while '"loaded": true' not in log.getvalue():
                await asyncio.sleep(0.05)
        service.end()
        await running
