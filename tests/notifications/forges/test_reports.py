"""What forges are told of commits: each request is one that the published description allows."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest

from reconciler.clock import SystemClock
from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.forges.channel import ForgeChannel
from reconciler.notifications.forges.registry import ForgeOptions, ForgeSet
from reconciler.notifications.message import EventType, State
from tests.notifications.forges.setup import FAILED, KINDS, SOURCE, make_finding, make_message, make_set, make_settings
from tests.notifications.forges.stub_forge import COMMIT, Failure, StubForge, run_stub

WORDS = {
    "github": ["pending", "pending", "success"],
    "gitlab": ["pending", "running", "success"],
    "gitea": ["pending", "pending", "success"],
    "forgejo": ["pending", "pending", "success"],
    "bitbucket": ["INPROGRESS", "INPROGRESS", "SUCCESSFUL"],
    "bitbucket-server": ["INPROGRESS", "INPROGRESS", "SUCCESSFUL"],
}
SUPERSEDED = {
    "github": "success", "gitlab": "canceled", "gitea": "warning", "forgejo": "warning", "bitbucket": "STOPPED",
    "bitbucket-server": "CANCELLED",
}  # fmt: skip

_FAILED = {"github": "failure", "gitlab": "failed"}


def _states(stub: StubForge) -> list[str]:
    return [status["state"] for status in stub.statuses[COMMIT]]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_commit_shows_each_state_of_its_run(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        channel = ForgeChannel(make_set(make_settings(kind, stub.url, tmp_path)))
        reference = ""
        for sequence, state in enumerate((State.PENDING, State.RUNNING, State.SUCCESS), 1):
            reference = await channel.send(make_message(state, sequence=sequence), reference)
        await channel.close()
        assert _states(stub) == WORDS[kind]
        last = stub.statuses[COMMIT][-1]
        assert last["description"] == "2 created"
        assert "https://reconciler.example.com/page/runs/7" in last.values()
        assert "reconciler/shop" in last.values()
        assert not stub.faults


@pytest.mark.parametrize("kind", KINDS)
async def test_a_superseded_commit_ends_in_a_state_of_its_own(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        channel = ForgeChannel(make_set(make_settings(kind, stub.url, tmp_path)))
        await channel.send(make_message(State.PENDING), "")
        await channel.send(make_message(State.SUPERSEDED, sequence=2, counts={}, title="superseded"), "")
        await channel.close()
        assert _states(stub)[-1] == SUPERSEDED[kind]
        assert stub.statuses[COMMIT][-1]["description"] == "superseded"
        assert not stub.faults


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_names_its_first_reason(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        channel = ForgeChannel(make_set(make_settings(kind, stub.url, tmp_path)))
        message = make_message(State.FAILURE, counts={"created": 1, "failed": 1}, resources=(FAILED,))
        await channel.send(message, "")
        await channel.close()
        description = stub.statuses[COMMIT][-1]["description"]
        assert description.startswith("1 created, 1 failed: workload/shop/api: ImagePullFailed there is no image")
        assert not stub.faults


async def test_an_older_message_changes_nothing(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        channel = ForgeChannel(make_set(make_settings("gitea", stub.url, tmp_path)))
        await channel.send(make_message(State.SUCCESS, sequence=3), "")
        await channel.send(make_message(State.RUNNING, sequence=2), "")
        await channel.close()
        assert _states(stub) == ["success"]


@pytest.mark.parametrize("event", [event for event in EventType if event not in ("run", "refused", "test")])
async def test_what_is_about_no_commit_is_not_sent(event: EventType, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        channel = ForgeChannel(make_set(make_settings("gitea", stub.url, tmp_path)))
        await channel.send(make_message(event=event), "")
        await channel.close()
        assert not stub.requests


async def test_a_refused_revision_has_its_findings_at_their_lines(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        channel = ForgeChannel(make_set(make_settings("github", stub.url, tmp_path, app=True)))
        findings = tuple(make_finding(line=number) for number in range(1, 71))
        message = make_message(State.FAILURE, event=EventType.REFUSED, counts={}, findings=findings)
        await channel.send(message, "")
        await channel.close()
        [run] = stub.check_runs.values()
        assert (run["status"], run["conclusion"]) == ("completed", "failure")
        assert len(run["output"]["annotations"]) == 50
        assert run["output"]["annotations"][6] == {
            "path": "shop/api.yaml",
            "start_line": 7,
            "end_line": 7,
            "annotation_level": "failure",
            "title": "schema-type",
            "message": "`replicas` is no number\nwrite a number",
        }
        assert not stub.faults


async def test_findings_of_a_source_with_a_path_are_at_the_files_of_the_repository(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        settings = make_settings("github", stub.url, tmp_path, app=True)
        source = msgspec.structs.replace(SOURCE, path="./deploy/")
        channel = ForgeChannel(ForgeSet("forge", settings, (source,), SystemClock(), ForgeOptions(pause=0.0)))
        await channel.send(make_message(State.FAILURE, findings=(make_finding(),)), "")
        await channel.close()
        [run] = stub.check_runs.values()
        assert run["output"]["annotations"][0]["path"] == "deploy/shop/api.yaml"


async def test_a_check_run_of_an_app_is_changed_in_place_even_after_a_crash(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        settings = make_settings("github", stub.url, tmp_path, app=True)
        channel = ForgeChannel(make_set(settings))
        reference = await channel.send(make_message(State.PENDING), "")
        await channel.send(make_message(State.RUNNING, sequence=2), reference)
        await channel.close()
        # The daemon was killed before the reference was on disk.
        channel = ForgeChannel(make_set(settings))
        await channel.send(make_message(State.SUCCESS, sequence=3), "")
        await channel.close()
        [run] = stub.check_runs.values()
        assert (run["status"], run["conclusion"]) == ("completed", "success")
        assert stub.issued_tokens == 2
        [asked] = [call for call in stub.requests[:5] if call.path.endswith("/access_tokens")]
        assert asked.body == {"repositories": ["shop"], "permissions": {"checks": "write"}}
        assert not stub.faults


@pytest.mark.parametrize("lost", range(1, 9))
@pytest.mark.parametrize("kind", ["github", "gitlab"])
async def test_a_lost_answer_never_makes_a_second_check_run_or_deployment(kind: str, lost: int, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        settings = make_settings(kind, stub.url, tmp_path, app=kind == "github", environment="production")
        stub.lost = {lost}
        for sequence, state in enumerate((State.RUNNING, State.RUNNING, State.SUCCESS, State.SUCCESS), 1):
            channel = ForgeChannel(make_set(settings))
            with contextlib.suppress(SendFailed):
                await channel.send(make_message(state, sequence=sequence), "")
            await channel.close()
        [deployment] = stub.deployments.values()
        assert [run["conclusion"] for run in stub.check_runs.values()] == ["success"] * (kind == "github")
        assert deployment["states"][-1] == "success"
        assert not stub.faults


@pytest.mark.parametrize(
    ("kind", "states"),
    [("github", ["in_progress", "success"]), ("gitlab", ["running", "success"])],
)
async def test_a_deployment_follows_the_run(kind: str, states: list[str], tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        channel = ForgeChannel(make_set(make_settings(kind, stub.url, tmp_path, environment="production")))
        reference = await channel.send(make_message(State.PENDING), "")
        reference = await channel.send(make_message(State.RUNNING, sequence=2), reference)
        await channel.send(make_message(State.SUCCESS, sequence=3), reference)
        await channel.close()
        [deployment] = stub.deployments.values()
        assert deployment["environment"] == "production"
        assert [state for state in deployment["states"] if state] == states
        assert not stub.faults


@pytest.mark.parametrize("kind", ["github", "gitlab"])
async def test_two_sources_of_one_repository_have_a_deployment_each(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        settings = make_settings(kind, stub.url, tmp_path, environment="production", sources=("shop", "edge"))
        sources = (SOURCE, msgspec.structs.replace(SOURCE, name="edge", path="edge"))
        channel = ForgeChannel(ForgeSet("forge", settings, sources, SystemClock(), ForgeOptions(pause=0.0)))
        for sequence, (source, state) in enumerate((("shop", State.SUCCESS), ("edge", State.FAILURE)), 1):
            await channel.send(make_message(state, source=source, sequence=sequence), "")
        await channel.close()
        first, second = stub.deployments.values()
        assert [one["states"][-1] for one in (first, second)] == ["success", _FAILED[kind]]
        names = [one["environment"] for one in (first, second)]
        assert names == (["production/shop", "production/edge"] if kind == "gitlab" else ["production"] * 2)
        assert not stub.faults


async def test_gitlab_refuses_no_state_that_a_commit_has_already(tmp_path: Path) -> None:
    with run_stub("gitlab") as stub:
        channel = ForgeChannel(make_set(make_settings("gitlab", stub.url, tmp_path)))
        stub.failures.append(Failure(400, body=b'{"message": "Cannot transition status via :enqueue from :pending"}'))
        await channel.send(make_message(State.PENDING), "")
        await channel.close()
        assert len(stub.requests) == 1


async def test_a_status_that_gitlab_is_too_busy_for_is_tried_again(tmp_path: Path) -> None:
    with run_stub("gitlab") as stub:
        channel = ForgeChannel(make_set(make_settings("gitlab", stub.url, tmp_path)))
        stub.failures.append(Failure(409, body=b'{"message": "Another update to this commit status is in progress"}'))
        with pytest.raises(SendFailed, match="409 Conflict: Another update"):
            await channel.send(make_message(), "")
        await channel.send(make_message(), "")
        await channel.close()
        assert _states(stub) == ["success"]
        assert not stub.faults


@pytest.mark.parametrize("kind", KINDS)
async def test_a_test_message_checks_the_token(kind: str, tmp_path: Path) -> None:
    with run_stub(kind) as stub:
        channel = ForgeChannel(make_set(make_settings(kind, stub.url, tmp_path)))
        await channel.send(make_message(event=EventType.TEST, commit="", source=""), "")
        await channel.close()
        assert [request.method for request in stub.requests] == ["GET"]
        assert not stub.faults


@pytest.mark.parametrize("link", ["", f"https://{'a' * 500}.example.com"])
async def test_bitbucket_server_has_a_link_that_it_takes(link: str, tmp_path: Path) -> None:
    with run_stub("bitbucket-server") as stub:
        channel = ForgeChannel(make_set(make_settings("bitbucket-server", stub.url, tmp_path)))
        await channel.send(make_message(link=link), "")
        await channel.close()
        [status] = stub.statuses[COMMIT]
        assert status["url"] == f"{stub.url}/projects/acme/repos/shop/commits/{COMMIT}"
        assert not stub.faults


async def test_bitbucket_has_a_link_even_without_a_page(tmp_path: Path) -> None:
    with run_stub("bitbucket") as stub:
        settings = make_settings(
            "bitbucket", stub.url, tmp_path, username="ann", context="a-very-long-name-of-this-host"
        )
        channel = ForgeChannel(make_set(settings))
        await channel.send(make_message(link="", source="shop"), "")
        await channel.close()
        [status] = stub.statuses[COMMIT]
        assert status["url"] == f"{stub.url}/acme/shop/commits/{COMMIT}"
        assert not stub.faults
