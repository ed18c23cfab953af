"""Cron workloads on a host whose programs and clock belong to the test: due times, policies, results, restarts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.engines.host.controllers.executions import log_path
from reconciler.engines.host.controllers.replica_store import ReplicaStore
from reconciler.engines.host.decisions.execution_log import ExecutionEntry, ExecutionLog
from reconciler.engines.host.runtimes.protocol import ContainerId
from reconciler.errors import EngineError
from reconciler.model.key import Key
from tests.engines.host.cron.kit import MINUTE, CronHarness, play
from tests.engines.host.kit import WEB


def test_an_execution_starts_on_the_minute_and_is_named_by_it(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule()
        assert host.starts() == []
        await host.rest(MINUTE)
        name = f"web-{int(host.time.now() // 60)}"
        assert host.starts() == [name]
        [one] = await host.executions()
        assert (one.name, one.status, one.workload_version, one.completion_time) == (name, "Active", 1, "")
        host.end()
        await host.rest(1.0)
        [one] = await host.executions()
        assert (one.status, one.completion_time) == ("Success", "2026-01-01T00:01:00Z")
        assert host.replicas() == []

    play(tmp_path, story)


def test_forbid_skips_and_replace_stops_the_running_one_first(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule()
        await host.rest(3 * MINUTE)
        assert await host.states() == ["Active"]
        assert host.reasons() == ["ExecutionSkipped"]
        await host.schedule(2, concurrencyPolicy="Replace")
        await host.rest(2 * MINUTE)
        assert (await host.states())[-2:] == ["Removed", "Active"]
        assert len(host.programs.places()) == 1

    play(tmp_path, story)


@pytest.mark.parametrize(("policy", "status", "starts"), [("Never", "Failure", 1), ("OnFailure", "Active", 2)])
def test_a_failed_execution_restarts_only_on_failure(tmp_path: Path, policy: str, status: str, starts: int) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(restartPolicy=policy)
        await host.rest(MINUTE)
        host.end(3)
        await host.rest(20.0)
        assert (await host.states(), len(host.starts())) == ([status], starts)
        assert ("ExecutionFailed" in host.reasons()) == (policy == "Never")

    play(tmp_path, story)


def test_an_execution_past_its_deadline_is_removed_also_after_a_restart(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(schedule="0 * * * *", activeDeadlineSeconds=100)
        await host.rest(60 * MINUTE)
        assert await host.states() == ["Active"]
        await host.rest(60.0)
        await host.restart()
        await host.rest()
        assert await host.states() == ["Active"]
        await host.rest(45.0)
        [one] = await host.executions()
        assert (one.status, one.conditions[0]["reason"]) == ("Removed", "DeadlineExceeded")
        assert (len(host.starts()), host.programs.places()) == (1, [])

    play(tmp_path, story)


def test_a_month_without_a_daemon_is_one_start_and_one_event(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule()
        await host.rest(MINUTE)
        host.end()
        await host.rest()
        await host.engine.close()
        host.time.suspend(30 * 86_400.0)
        await host.restart()
        await host.rest()
        assert len(host.starts()) == 2
        assert host.reasons() == ["ExecutionsMissed"]
        assert host.events[0].message.startswith("more than 1000 scheduled executions since 2026-01-01T00:02:00Z")

    play(tmp_path, story)


def test_a_clock_that_is_set_back_starts_nothing_twice(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule()
        await host.rest(MINUTE)
        host.end()
        await host.rest()
        host.time.jump(-3600.0)
        for _ in range(62):
            await host.rest(MINUTE)
            host.end()
        # All but the minute in which the schedule began, and the one that ran.
        assert len(set(host.starts())) == len(host.starts()) == 61
        host.time.jump(-400 * 86_400.0)
        await host.rest(3 * MINUTE)
        assert len(host.starts()) == 62

    play(tmp_path, story)


def test_suspended_nothing_starts_but_on_demand_with_overrides(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(suspend=True)
        await host.rest(10 * MINUTE)
        assert host.starts() == []
        override = {"name": "main", "args": ["--full"], "env": [{"name": "DEPTH", "value": "3"}]}
        asked = {"location": "here", "containerOverrides": [override]}
        created = await host.engine.command(Key.parse(WEB), "runCronWorkload", asked)
        await host.rest()
        assert host.starts() == [created["name"]]
        launch = host.programs.running[ContainerId(Key.parse(WEB), created["name"], "main")].launch
        assert (launch.args, launch.env["DEPTH"]) == (("--full",), "3")
        for spec, words in (
            ({"location": "there"}, "the command is for there; this is here"),
            ({"location": "here", "containerOverrides": [{"name": "side"}]}, "has no container side; it has: main"),
        ):
            with pytest.raises(EngineError, match=words):
                await host.engine.command(Key.parse(WEB), "runCronWorkload", spec)

    play(tmp_path, story)


def test_a_command_that_is_performed_again_starts_no_second_execution(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(suspend=True)
        asked = {"location": "here"}
        first, again, other = [
            await host.engine.command(Key.parse(WEB), "runCronWorkload", asked, name) for name in ("a1", "a1", "b2")
        ]
        assert first["name"] == again["name"] != other["name"]
        await host.rest()
        assert host.starts() == [first["name"], other["name"]]

    play(tmp_path, story)


def test_the_history_has_a_limit_and_a_rollout_lets_executions_end(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(historyLimit=2)
        for _ in range(4):
            await host.rest(MINUTE)
            host.end()
            await host.rest()
        assert await host.states() == ["Success", "Success"]
        await host.rest(MINUTE)
        await host.schedule(2, image="good", historyLimit=2)
        await host.rest(1.0)
        executions = await host.executions()
        assert (executions[-1].status, executions[-1].workload_version) == ("Active", 1)
        assert len(host.programs.places()) == 1

    play(tmp_path, story)


def test_what_cannot_be_recorded_does_not_start_and_deadlines_hold_all_the_same(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(concurrencyPolicy="Replace", schedule="*/5 * * * *", activeDeadlineSeconds=120)
        await host.rest(5 * MINUTE)
        folder = log_path(host.root / "replicas", Key.parse(WEB)).parent
        folder.rename(folder.with_name("aside"))
        folder.write_text("")
        await host.rest(3 * MINUTE)
        assert (host.programs.places(), await host.states()) == ([], ["Active"]), "it ended, and that is not recorded"
        await host.rest(8 * MINUTE)
        assert len(host.starts()) == 1
        [seen] = await host.engine.observe()
        assert (seen.health, "shop/web.json" in seen.state.decode()) == ("Unhealthy", True)
        folder.unlink()
        folder.with_name("aside").rename(folder)
        for _ in range(35):
            await host.rest(1.0)
        assert (await host.states(), len(host.starts())) == (["Removed", "Active"], 2)
        assert host.reasons() == ["WorkloadError", "ExecutionFailed", "ExecutionsMissed"]

    play(tmp_path, story)


def test_what_could_not_be_started_is_invalid(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(image="broken")
        await host.rest(MINUTE)
        assert await host.states() == ["Invalid"]
        assert "ExecutionFailed" in host.reasons()

    play(tmp_path, story)


@pytest.mark.parametrize(("same_boot", "status", "starts"), [(True, "Active", 1), (False, "Failure", 0)])
def test_what_was_recorded_before_a_crash_starts_once(
    tmp_path: Path, same_boot: bool, status: str, starts: int
) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(schedule="0 0 1 1 *")
        await host.engine.close()
        path = log_path(host.root / "replicas", Key.parse(WEB))
        log = msgspec.json.decode(path.read_bytes(), type=ExecutionLog)
        boot = ReplicaStore(host.root / "replicas").boot if same_boot else "an earlier boot"
        entry = ExecutionEntry("web-1", 1, host.time.now(), boot=boot)
        path.write_bytes(msgspec.json.encode(msgspec.structs.replace(log, entries=(entry,))))
        for _ in range(2):
            await host.restart()
            await host.rest()
        assert (await host.states(), len(host.starts())) == ([status], starts)

    play(tmp_path, story)


def test_a_failed_container_starts_again_in_its_version_after_a_rollout_and_two_restarts(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(restartPolicy="OnFailure", schedule="*/5 * * * *")
        await host.rest(5 * MINUTE)
        [container_id] = host.programs.places()
        before = host.programs.running[container_id].launch
        await host.schedule(2, image="good", schedule="*/5 * * * *")
        for _ in range(2):
            await host.restart()
            await host.rest()
        host.end(3)
        await host.rest(20.0)
        [container_id] = host.programs.places()
        again = host.programs.running[container_id].launch
        assert again == before
        token = (host.root / "tokens/shop/web").read_bytes()
        assert not any(token in path.read_bytes() for path in (host.root / "templates").rglob("*.json"))
        host.end()
        await host.rest(5 * MINUTE)
        assert await host.states() == ["Success", "Active"]
        await host.restart()
        [path] = (host.root / "templates").rglob("*.json")
        assert (path.name.partition("-")[0], path.stat().st_mode & 0o777) == ("2", 0o600)

    play(tmp_path, story)


@pytest.mark.parametrize("ends", [True, False])
def test_missed_times_wait_until_git_is_read_which_may_end_the_schedule(tmp_path: Path, ends: bool) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule()
        await host.rest(MINUTE)
        assert len(host.starts()) == 1
        host.git_is_read = False
        await host.restart()
        host.end()
        await host.rest(5 * MINUTE)
        assert await host.states() == ["Success"], "what ends is recorded meanwhile"
        if ends:
            await host.schedule(2, suspend=True)
        host.engine.begin_schedules()
        await host.rest(MINUTE / 2)
        assert (len(host.starts()), "ExecutionsMissed" in host.reasons()) == ((1, False) if ends else (2, True))

    play(tmp_path, story)


def test_an_execution_restarts_also_before_git_is_read(tmp_path: Path) -> None:
    async def story(host: CronHarness) -> None:
        await host.schedule(restartPolicy="OnFailure")
        await host.rest(MINUTE)
        host.git_is_read = False
        await host.restart()
        host.end(3)
        await host.rest(20.0)
        assert len(host.starts()) == 2

    play(tmp_path, story)
