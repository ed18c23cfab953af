"""Pull requests are planned by a process of their own, and their one comment is kept up to date."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path

import msgspec
import pytest

from reconciler.notifications.channels.channel import SendFailed
from reconciler.notifications.forges.follower import MOST_TRIES
from reconciler.notifications.forges.job import PullJob, PullPlan, run_job
from reconciler.records.store import FILE, Records
from reconciler.review.pull_request import plan_pull_request
from reconciler.settings import ApiSettings
from reconciler.settings.forges import PullRequestSettings
from tests.notifications.forges.scene import FILES, Scene, refuse_comments
from tests.notifications.forges.setup import KINDS
from tests.notifications.forges.stub_forge import TOKEN, Failure, make_pull, run_stub
from tests.records.samples import record
from tests.support.git import File
from tests.support.pipeline import PipelineHarness
from tests.support.sandbox import workload

SECRET = "planted-value-8151"
NAME = re.compile(r"reconciler:shop:[0-9a-f]{32}")


def plan(shop: PipelineHarness, head: str, **changes: object) -> PullPlan:
    """The plan of ``head``, in this process."""
    job = PullJob(shop.settings, "shop", 5, head, "refs/pull/5/head", is_fork=False)
    return plan_pull_request(msgspec.structs.replace(job, **changes))


def test_a_head_is_planned_against_what_is_applied(shop: PipelineHarness) -> None:
    base = shop.repo.git("rev-parse", "main")
    head = shop.repo.commit({"shop/web.yaml": workload("web")}, branch="change", parent=base)
    planned = plan(shop, head)
    assert (planned.head, planned.base, planned.applied, planned.problem) == (head, base, base, "")
    assert planned.summary == "1 to create"
    assert "`workload/shop/web`" in planned.markdown
    assert f"`pull request 5@sha1:{head[:12]}`" in planned.markdown
    # Nothing was applied, and the repository of the source is as it was.
    assert "workload/shop/web@here" not in shop.recorded()
    assert shop.repo.git("rev-parse", "main") == base


def test_what_the_branch_has_meanwhile_is_no_part_of_the_plan(shop: PipelineHarness) -> None:
    first = shop.repo.git("rev-parse", "main")
    head = shop.repo.commit({"shop/web.yaml": workload("web")}, branch="change", parent=first)
    base = shop.commit({"shop/db.yaml": workload("db")})
    shop.applied()
    planned = plan(shop, head)
    assert (planned.base, planned.applied) == (base, base)
    assert planned.summary == "1 to create"
    assert "workload/shop/db" not in planned.markdown


def test_a_conflict_is_named(shop: PipelineHarness) -> None:
    first = shop.repo.git("rev-parse", "main")
    head = shop.repo.commit({"shop/api.yaml": workload("api", 1111)}, branch="change", parent=first)
    shop.commit({"shop/api.yaml": workload("api", 2222)})
    shop.applied()
    assert plan(shop, head).problem == "it has conflicts with main; merge that into it first"


def test_an_error_has_its_file_and_line(shop: PipelineHarness) -> None:
    base = shop.repo.git("rev-parse", "main")
    broken = workload("api").replace("8080", "nonsense")
    head = shop.repo.commit({"shop/api.yaml": broken}, branch="change", parent=base)
    planned = plan(shop, head)
    assert planned.has_errors
    assert planned.summary.startswith("refused: ")
    assert planned.findings[0].path == "shop/api.yaml"
    assert planned.findings[0].line > 1
    assert "shop/api.yaml:" in planned.markdown


@pytest.mark.parametrize("is_fork", [True, False])
def test_a_secret_is_in_no_plan(shop: PipelineHarness, is_fork: bool) -> None:
    base = shop.repo.git("rev-parse", "main")
    secret = f"kind: secret\nname: login\ntype: opaque\ndata: {{payload: {SECRET}, encoding: plain}}\n"
    head = shop.repo.commit({"login.yaml": secret}, branch="change", parent=base)
    planned = plan(shop, head, is_fork=is_fork)
    assert not planned.problem
    assert "secret/login" in planned.markdown
    assert SECRET not in msgspec.json.encode(planned).decode()


def test_a_fork_is_planned_without_what_this_host_has(shop: PipelineHarness, tmp_path: Path) -> None:
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "login").write_text(SECRET)
    (directory / "login").chmod(0o600)
    secrets = msgspec.structs.replace(shop.settings.secrets, directory=directory)
    settings = msgspec.structs.replace(shop.settings, secrets=secrets)
    base = shop.repo.git("rev-parse", "main")
    text = "kind: secret\nname: login\ntype: opaque\ndata: {payload: 'file:///login', encoding: plain}\n"
    head = shop.repo.commit({"login.yaml": text}, branch="change", parent=base)
    before = (directory / "login").stat().st_atime_ns
    planned = plan(shop, head, settings=settings, is_fork=True)
    assert not planned.problem
    assert planned.summary == "1 to create"
    assert (directory / "login").stat().st_atime_ns == before
    assert f"compared with `sha1:{base[:12]}`" in planned.markdown


@pytest.mark.parametrize("is_fork", [True, False])
@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "kind: workload\n" + "&a [*a, *a]\n" * 10,
        "x" * 2_000_000,
        f"kind: workload\nname: {'n' * 500}\n",
        "\x00\x01",
        "a: &a [1]\nb: [" + "*a," * 200_000 + "]",
    ],
)
def test_a_hostile_file_ends_as_findings(shop: PipelineHarness, text: str, is_fork: bool) -> None:
    base = shop.repo.git("rev-parse", "main")
    head = shop.repo.commit({"shop/evil.yaml": text}, branch="change", parent=base)
    planned = plan(shop, head, is_fork=is_fork)
    assert planned.has_errors
    assert planned.findings
    assert len(msgspec.json.encode(planned)) < 1_000_000


def test_a_head_that_is_not_there_is_tried_again(shop: PipelineHarness) -> None:
    planned = plan(shop, "ab" * 20)
    assert planned.is_passing
    assert "is not in" in planned.problem
    assert not plan(shop, "ab" * 20, fetch="").is_passing


@pytest.mark.parametrize(
    ("head", "fetch"),
    [("main", ""), (":/Change", ""), ("--upload-pack=x", ""), ("ab" * 20, "refs/pull/5/head:refs/heads/main")],
)
def test_a_forge_that_names_no_commit_or_ref_is_not_followed(shop: PipelineHarness, head: str, fetch: str) -> None:
    assert "in no form that Git knows" in plan(shop, head, fetch=fetch).problem


async def test_the_process_of_a_plan_has_limits_and_ends(shop: PipelineHarness) -> None:
    base = shop.repo.git("rev-parse", "main")
    head = shop.repo.commit({"shop/web.yaml": workload("web")}, branch="change", parent=base)
    job = PullJob(shop.settings, "shop", 5, head, "", is_fork=False)
    assert (await run_job(job)).summary == "1 to create"
    assert "longer than 0.01 s" in (await run_job(job, 0.01)).problem
    running = asyncio.create_task(run_job(job))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("kind", KINDS)
async def test_one_comment_shows_the_plan_and_after_the_merge_the_outcome(
    kind: str, shop: PipelineHarness, tmp_path: Path
) -> None:
    with run_stub(kind) as stub:
        scene = Scene(stub, shop, tmp_path)
        head = scene.push(5)
        await scene.follower.update_comments()
        body = scene.body(5)
        assert "1 to create" in body
        assert "workload/shop/web" in body
        assert f"Head `{head[:12]}`, merged into `main` at `{scene.base[:12]}`" in body
        assert stub.statuses[head][-1]["description"] == "1 to create"
        written = len(stub.requests)
        await scene.follower.update_comments()
        assert [request.method for request in stub.requests[written:]] == ["GET"]
        scene.push(5, "second", parent=head)
        await scene.follower.update_comments()
        assert "2 to create" in scene.body(5)
        merged = shop.commit({"shop/web.yaml": workload("web"), "shop/second.yaml": workload("second")})
        await asyncio.to_thread(shop.applied)
        stub.pulls[5] = make_pull(kind, 5, merged, merged=merged)
        stub_list, stub.pulls = stub.pulls, {}
        stub.closed = stub_list
        await scene.follower.update_comments()
        await scene.follower.update_comments()
        assert "after the merge" in scene.body(5)
        assert "2 created" in scene.body(5)
        assert merged[:12] in scene.body(5)
        assert "Planned before the merge: `2 to create`." in scene.body(5)
        assert not stub.faults
        written = len(stub.requests)
        await scene.follower.update_comments()
        assert [request.method for request in stub.requests[written:]] == ["GET"]
        assert not any(TOKEN in str((request.path, request.query, request.raw)) for request in stub.requests)
        await scene.set.close()


@pytest.mark.parametrize(("kind", "heading"), [("gitea", "<details open>"), ("bitbucket", "**Changed fields**")])
async def test_the_fields_of_a_small_change_are_unfolded(
    kind: str, heading: str, shop: PipelineHarness, tmp_path: Path
) -> None:
    with run_stub(kind) as stub:
        scene = Scene(stub, shop, tmp_path)
        head = shop.repo.commit({"shop/api.yaml": workload("api", 9999)}, branch="change-5", parent=scene.base)
        stub.pulls[5] = make_pull(kind, 5, head)
        await scene.follower.update_comments()
        assert heading in scene.body(5)
        assert "9999" in scene.body(5)
        await scene.set.close()


@pytest.mark.parametrize("fork", [False, True])
async def test_the_comment_names_who_may_approve_and_follows_no_change_of_policies(
    fork: bool, shop: PipelineHarness, tmp_path: Path
) -> None:
    shop.settings = msgspec.structs.replace(
        shop.settings, approval="always", approval_four_eyes=True, api=ApiSettings("127.0.0.1:8443")
    )
    put_policy(shop, "ops", "leads")
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5, fork=fork)
        await scene.follower.update_comments()
        who = "the groups `leads`, `ops` and `superusers`, 1 other person, or an operator of the host"
        waits = "After the merge, 1 resource waits for an approval: `reconciler approve`."
        assert f"{waits} Who may approve: {who}, but no author of the change.\n" in scene.body(5)
        assert "ada@example.com" not in scene.body(5)
        put_policy(shop, "others")
        written = len(stub.requests)
        await scene.follower.update_comments()
        assert [request.method for request in stub.requests[written:]] == ["GET"]
        await scene.set.close()


def put_policy(shop: PipelineHarness, *groups: str) -> None:
    """Let ``groups`` approve, and a person."""
    links = [*(f"//group/{group}" for group in groups), "//user/ada@example.com"]
    bindings = [{"permissions": ["approve"], "principalLinks": links}]
    body = {"kind": "policy", "name": "approve", "targetKind": "org", "target": "all", "bindings": bindings}
    shop.records.applied.put(msgspec.structs.replace(record("policy/approve"), body=msgspec.json.encode(body)))


async def test_the_same_comment_is_changed_after_a_crash(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        await scene.follower.update_comments()
        (shop.settings.state / "forges" / "shop.json").unlink()
        scene.restart()
        written = len(stub.comments[5])
        scene.push(5, "other")
        await scene.follower.update_comments()
        assert len(stub.comments[5]) == written == 1
        assert "workload/shop/other" in scene.body(5)
        await scene.set.close()


@pytest.mark.parametrize("lost", range(1, 7))
@pytest.mark.parametrize("kind", ["gitea", "github", "gitlab", "bitbucket", "bitbucket-server"])
async def test_a_lost_answer_and_a_crash_never_make_a_second_comment(
    kind: str, lost: int, shop: PipelineHarness, tmp_path: Path
) -> None:
    with run_stub(kind) as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        stub.lost = {lost}
        for _ in range(3):
            with contextlib.suppress(SendFailed):
                await scene.follower.update_comments()
            scene.restart()
        assert len(stub.comments[5]) == 1
        assert "1 to create" in scene.body(5)
        await scene.set.close()


async def test_a_comment_with_a_copied_name_stays_that_of_its_author(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        stub.comments[5] = {1: "<!-- reconciler:shop:00000000000000000000000000000000 -->\nA plan of Eve's"}
        scene.push(5)
        await scene.follower.update_comments()
        own = max(stub.comments[5])
        found = NAME.search(stub.comments[5][own])
        assert found
        stub.comments[5][own + 1] = f"<!-- {found[0]} -->\nA later copy"
        (shop.settings.state / "forges" / "shop.json").unlink()
        scene.restart()
        scene.push(5, "other")
        await scene.follower.update_comments()
        assert "Eve" in stub.comments[5][1]
        assert "workload/shop/other" in stub.comments[5][own]
        assert stub.comments[5][own + 1].endswith("A later copy")
        await scene.set.close()


async def test_a_comment_that_somebody_deleted_is_made_again(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("github") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        await scene.follower.update_comments()
        stub.comments[5].clear()
        scene.push(5, "other")
        await scene.follower.update_comments()
        assert "workload/shop/other" in scene.body(5)
        await scene.set.close()


async def test_a_new_base_is_a_new_plan(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        await scene.follower.update_comments()
        base = shop.commit({"shop/db.yaml": workload("db")})
        await asyncio.to_thread(shop.applied)
        await scene.follower.update_comments()
        assert scene.plans == 2
        assert f"at `{base[:12]}`" in scene.body(5)
        await scene.set.close()


async def test_forks_come_last_and_can_be_left_out(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5, "eve", fork=True)
        scene.push(6)
        await scene.follower.update_comments()
        assert list(stub.comments) == [6, 5]
        assert "never applied" in scene.body(5)
        await scene.set.close()
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path, pull_requests=PullRequestSettings(forks=False))
        (shop.settings.state / "forges" / "shop.json").unlink()
        scene.restart()
        scene.push(5, "eve", fork=True)
        await scene.follower.update_comments()
        assert not stub.comments
        await scene.set.close()


async def test_a_pull_request_that_is_locked_stops_no_other(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        scene.push(6, "other")
        locked = Failure(403, body=b'{"message": "the conversation is locked"}')
        for _ in range(MOST_TRIES + 2):
            listed = stub.requests[:]
            stub.refuse = lambda request: locked if "/issues/5/" in request.path else None
            await scene.follower.update_comments()
        assert "workload/shop/other" in scene.body(6)
        assert 5 not in stub.comments
        # It is not tried for ever.
        assert [request.method for request in stub.requests[len(listed) :]] == ["GET"]
        await scene.set.close()


@pytest.mark.parametrize("kind", ["github", "gitlab", "gitea", "bitbucket", "bitbucket-server"])
async def test_long_texts_of_one_pull_request_hide_no_other(
    kind: str, shop: PipelineHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.notifications.forges.client.MOST_BYTES", 20_000)
    with run_stub(kind) as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5, "first")
        stub.pulls[6] = make_pull(kind, 6, "ab" * 20) | {"description": "x" * 30_000}
        scene.push(7, "last")
        stub.comments[7] = dict.fromkeys(range(1, 5), "y" * 9000) if kind != "gitea" else {}
        await scene.follower.update_comments()
        assert "workload/shop/first" in scene.body(5)
        assert 6 not in stub.comments
        assert "workload/shop/last" in stub.comments[7][max(stub.comments[7])]
        assert not stub.faults
        await scene.set.close()


async def test_a_forge_that_is_down_changes_nothing_until_it_is_back(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        stub.failures += [Failure(503)]
        with pytest.raises(SendFailed):
            await scene.follower.update_comments()
        await scene.follower.update_comments()
        assert "1 to create" in scene.body(5)
        await scene.set.close()


async def test_nothing_is_planned_before_anything_is_applied(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    shop = PipelineHarness(state, FILES, records=Records.open(state / FILE), name="shop")
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        await scene.follower.update_comments()
        assert not stub.requests
        await scene.set.close()


async def test_a_pull_request_that_is_closed_is_forgotten(shop: PipelineHarness, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        head = scene.push(5)
        await scene.follower.update_comments()
        stub.pulls = {}
        stub.closed = {5: make_pull("gitea", 5, head, is_open=False)}
        before = scene.body(5)
        await scene.follower.update_comments()
        written = len(stub.requests)
        await scene.follower.update_comments()
        assert scene.body(5) == before
        assert [request.method for request in stub.requests[written:]] == ["GET"]
        await scene.set.close()


@pytest.mark.parametrize("status", [403, 404])
async def test_a_merged_pull_request_that_is_locked_or_deleted_stops_no_other(
    status: int, shop: PipelineHarness, tmp_path: Path
) -> None:
    with run_stub("gitea") as stub:
        scene = Scene(stub, shop, tmp_path)
        scene.push(5)
        await scene.follower.update_comments()
        merged = shop.commit({"shop/web.yaml": workload("web")})
        await asyncio.to_thread(shop.applied)
        stub.pulls.clear()
        stub.closed[5] = make_pull("gitea", 5, merged, merged=merged)
        await scene.follower.update_comments()
        scene.base = merged
        scene.push(6, "other")
        stub.refuse = refuse_comments(stub, 5, status)
        for _ in range(MOST_TRIES):
            await scene.follower.update_comments()
        assert "workload/shop/other" in scene.body(6)
        written = len(stub.requests)
        await scene.follower.update_comments()
        # It is not tried for ever.
        assert [request.method for request in stub.requests[written:]] == ["GET"]
        await scene.set.close()


async def test_many_lines_are_cut_to_what_the_forge_takes(shop: PipelineHarness, tmp_path: Path) -> None:
    files: dict[str | bytes, File] = {
        f"shop/w{number}.yaml": workload(f"w{number}", more=f"  # {'x' * 900}") for number in range(300)
    }
    with run_stub("bitbucket") as stub:
        scene = Scene(stub, shop, tmp_path)
        head = shop.repo.commit(files, branch="change-5", parent=scene.base)
        stub.pulls[5] = make_pull("bitbucket", 5, head)
        await scene.follower.update_comments()
        assert len(scene.body(5)) <= 32_768
        assert "`reconciler plan` shows the rest" in scene.body(5)
        assert not stub.faults
        await scene.set.close()
