"""`reconciler apply` and `approve`: one run, the deletes that wait, and their approval."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import yaml

from tests.support.command_sandbox import SETTINGS, SHOP, CommandSandbox, golden, workload
from tests.support.git import File, GitRepo

WITHOUT_DB: dict[str, File] = {"shop/db.yaml": None, "shop/web.yaml": workload("web", "2")}
"""The volumes go, which waits; the workload that used them goes, and another changes, which do not."""


def waiting_sandbox(path: Path) -> CommandSandbox:
    sandbox = CommandSandbox(path)
    sandbox.applied()
    sandbox.commit(WITHOUT_DB)
    return sandbox


def versions(sandbox: CommandSandbox) -> dict[str, int]:
    return {item["name"]: item["version"] for item in sandbox.run("get", "workload", "-o", "json").json["items"]}


def test_apply_ends_after_the_run_and_its_status_commit(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    result = sandbox.run("apply", real=True)
    assert (result.code, result.err) == (0, "")
    golden("applied.txt", result.out)
    assert sandbox.recorded() == {
        "gvc/shop",
        "identity/shop/api",
        "policy/reveal-db",
        "secret/db",
        "volumeset/shop/data",
        "workload/shop/api",
        "workload/shop/db",
        "workload/shop/web",
    }
    run = yaml.safe_load(sandbox.status("reconciler.yaml"))
    assert sandbox.repo.git("rev-parse", "main") in json.dumps(run), "the status branch is written by then"
    assert "key: workload/shop/web" in sandbox.status("shop/workload/web.yaml")


def test_a_second_run_reports_that_nothing_is_to_be_done(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    tip = sandbox.repo.git("rev-parse", "main")
    assert sandbox.applied().out == f"main: unchanged at main@sha1:{tip[:12]} (Change, Ada): nothing to do\n"
    status = sandbox.repo.git("rev-parse", "reconciler/status")
    sandbox.applied()
    assert sandbox.repo.git("rev-parse", "reconciler/status") == status, "what stayed as it was is not written again"


def test_a_change_moves_only_what_it_is_about(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    assert sandbox.applied().out.endswith(": 1 updated (2 steps)\n")
    assert versions(sandbox) == {"api": 1, "db": 1, "web": 2}


def test_a_refused_revision_changes_nothing_and_exits_with_1(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.commit({"shop/web.yaml": workload("web", "2"), "shop/bad.yaml": "kind: workload\nname: bad\n"})
    result = sandbox.run("apply")
    assert (result.code, result.err) == (1, "")
    golden("apply-refused.txt", result.out)
    assert versions(sandbox) == {"api": 1, "db": 1, "web": 1}
    assert "shop/bad.yaml" in sandbox.status("reconciler.yaml")


def test_apply_lists_deletes_that_wait_and_applies_the_rest(tmp_path: Path) -> None:
    sandbox = waiting_sandbox(tmp_path)
    result = sandbox.run("apply")
    assert (result.code, result.err) == (1, "")
    golden("apply-waits.txt", result.out)
    assert versions(sandbox) == {"api": 1, "db": 1, "web": 2}
    assert "volumeset/shop/data" in sandbox.recorded()
    assert "ApprovalRequired" in sandbox.status("shop/volumeset/data.yaml")
    assert sandbox.run("apply").code == 1, "it waits until somebody approves"


@pytest.mark.parametrize("digest", ["digest", "hold_digest"])
@pytest.mark.parametrize("length", [4, 12])
@pytest.mark.parametrize("applied_first", [True, False])
def test_the_beginning_of_a_digest_is_enough_for_an_approval(
    tmp_path: Path, digest: str, length: int, applied_first: bool
) -> None:
    sandbox = waiting_sandbox(tmp_path)
    planned = sandbox.plan()
    if applied_first:
        assert sandbox.run("apply").code == 1
    result = sandbox.run("approve", planned[digest][: length - 1] if length == 4 else "0" * length)
    assert (result.code, "approved" in result.out) == (1, False)
    result = sandbox.run("approve", planned[digest][:length])
    assert (result.code, result.err) == (0, "")
    assert f"approved {planned['hold_digest'][:12]} as " in result.out
    assert sandbox.run("apply").code == 0


@pytest.mark.parametrize("digest", ["digest", "hold_digest"])
@pytest.mark.parametrize("applied_first", [True, False])
def test_an_approval_lets_the_deletes_go(tmp_path: Path, digest: str, applied_first: bool) -> None:
    sandbox = waiting_sandbox(tmp_path)
    planned = sandbox.plan()
    if applied_first:
        assert sandbox.run("apply").code == 1
    result = sandbox.run("approve", planned[digest])
    assert (result.code, result.err) == (0, "")
    assert planned["hold_digest"][:12] in result.out
    assert "the next `reconciler apply` continues with it" in result.out
    assert sandbox.run("apply").code == 0
    assert "volumeset/shop/data" not in sandbox.recorded()
    assert sandbox.plan()["steps"] == []


def test_an_unrelated_commit_does_not_void_an_approval(tmp_path: Path) -> None:
    sandbox = waiting_sandbox(tmp_path)
    digest = sandbox.plan()["hold_digest"]
    assert sandbox.run("approve", digest, real=True).code == 0
    sandbox.commit({"shop/api.yaml": str(SHOP["shop/api.yaml"]).replace("api:1", "api:2")})
    assert sandbox.run("apply").code == 0
    assert versions(sandbox) == {"api": 2, "web": 2}


def test_a_refusal_is_of_exactly_the_steps_that_were_read(tmp_path: Path) -> None:
    sandbox = waiting_sandbox(tmp_path)
    digest = sandbox.plan()["hold_digest"]
    assert sandbox.run("refuse", digest[:12], "--reason", "not now").code == 0
    assert "refused by" in sandbox.plan()["refusal"]
    assert sandbox.run("apply").code == 1
    sandbox.commit({"shop/api.yaml": str(SHOP["shop/api.yaml"]).replace("api:1", "api:2")})
    assert sandbox.run("apply").code == 1
    assert sandbox.plan()["refusal"] is not None, "the same steps wait, so that they are refused still"
    sandbox.commit({"shop/web.yaml": None})
    assert sandbox.run("apply").code == 1
    assert sandbox.plan()["refusal"] is None, "other steps wait, about which nobody has decided"


def test_a_refusal_voids_an_approval_and_an_approval_a_refusal(tmp_path: Path) -> None:
    sandbox = waiting_sandbox(tmp_path)
    digest = sandbox.plan()["hold_digest"]
    for command in ("approve", "refuse"):
        assert sandbox.run(command, digest).code == 0
    assert sandbox.run("apply").code == 1
    assert "volumeset/shop/data" in sandbox.recorded()
    assert sandbox.run("approve", digest).code == 0
    assert sandbox.run("apply").code == 0
    assert "volumeset/shop/data" not in sandbox.recorded()


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_commands_print_the_approval_that_waits(tmp_path: Path, command: str) -> None:
    sandbox = waiting_sandbox(tmp_path)
    typed = re.findall(r"reconciler (approve [0-9a-f]{12})$", sandbox.run(command).out, re.MULTILINE)
    assert len(typed) == 1
    assert sandbox.run(*typed[0].split()).code == 0
    assert sandbox.run("apply").code == 0


def test_an_approval_covers_only_what_was_read(tmp_path: Path) -> None:
    sandbox = waiting_sandbox(tmp_path)
    assert sandbox.run("approve", sandbox.plan()["hold_digest"]).code == 0
    sandbox.commit({"shop/web.yaml": None, "shop/api.yaml": workload()})
    result = sandbox.run("apply")
    assert result.code == 1, "other deletes wait for an approval of their own"
    assert "volumeset/shop/data" in sandbox.recorded()


def test_approve_refuses_an_unknown_digest_and_names_the_one_that_waits(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    result = sandbox.run("approve", "0" * 32)
    assert result.code == 1
    assert result.err.startswith("error: there are no records yet")
    assert not sandbox.state.exists()
    sandbox.applied()
    assert sandbox.run("approve", "0" * 32).err.endswith("nothing waits now\n")
    sandbox.commit(WITHOUT_DB)
    result = sandbox.run("approve", "0" * 32)
    assert result.code == 1
    assert (
        result.err == f"error: no plan has the digest {'0' * 32}; now waiting: {sandbox.plan()['hold_digest'][:12]}\n"
    )


def test_waiting_for_health_ends_when_all_is_healthy(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    result = sandbox.run("apply", "--wait", "--timeout", "20")
    assert (result.code, result.err) == (0, "")
    found = {item["kind"]: item["health"] for item in sandbox.run("get", "-o", "json").json["items"]}
    assert {found.pop(kind) for kind in ("workload", "volumeset", "gvc")} == {"Recorded"}
    assert set(found.values()) == {"Healthy"}


def test_apply_names_who_made_the_commit_and_counts_as_the_plan_does(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    changes: list[tuple[dict[str, str | None], str]] = [
        ({}, "Change"),
        ({"shop/web.yaml": workload("web", "2"), "shop/more.yaml": workload("more")}, "Say hello to " + "many " * 20),
        ({"shop/more.yaml": None}, "Take it away"),
    ]
    for files, subject in changes:
        if files:
            sandbox.commit(files, message=subject)
        planned = re.search(r"^Plan: (.*?)\.", sandbox.run("plan").out, re.MULTILINE)
        assert planned is not None
        done = sandbox.run("apply").out.splitlines()[0]
        assert re.search(rf"\({re.escape(subject[:50])}.*, Ada\): ", done), done
        counts = done.rpartition("): ")[2].partition(" (")[0].replace(" steps)", "")
        wanted = {"create": "created", "update": "updated", "delete": "deleted", "replace": "replaced"}
        words = planned[1].replace(" to ", " ").split(", ")
        expected = [f"{number} {wanted[word]}" for number, word in map(str.split, words)]
        assert sorted(re.sub(r" \(\d+ steps?\)", "", counts).split(", ")) == sorted(expected), (done, planned[0])


def test_waiting_does_not_outlast_what_has_no_place_on_this_host(tmp_path: Path) -> None:
    files: dict[str, File] = {
        "far/gvc.yaml": "kind: gvc\nname: far\nspec: {staticPlacement: {locationLinks: [//location/away]}}\n",
        "far/away.yaml": "kind: location\nname: away\nprovider: byok\nregion: away\n",
        "far/job.yaml": workload("job"),
    }
    sandbox = CommandSandbox(tmp_path, SHOP | files)
    began = time.monotonic()
    result = sandbox.run("apply", "--wait", "--timeout", "600")
    assert (result.code, result.err) == (0, "")
    assert time.monotonic() - began < 300
    assert sandbox.run("get", "workload", "job", "-o", "json").json["health"] == "Unknown"


def test_waiting_does_not_outlast_what_only_a_person_can_change(tmp_path: Path) -> None:
    sandbox = waiting_sandbox(tmp_path)
    assert sandbox.run("apply", "--wait", "--timeout", "20").code == 1


def test_one_source_that_cannot_be_read_does_not_hold_back_another(tmp_path: Path) -> None:
    both = SETTINGS.replace("sources:\n", "sources:\n  - {name: lost, url: ./lost, branch: main}\n")
    sandbox = CommandSandbox(tmp_path, settings=both)
    result = sandbox.run("apply")
    assert result.code == 1
    lost, done = result.out.splitlines()
    assert lost.startswith("lost: unreadable: source lost: no Git repository can be read at ")
    assert done.startswith("main: applied at ")
    assert "workload/shop/api" in sandbox.recorded()


def test_a_failed_status_commit_is_reported_and_fails_no_run(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.repo.git("branch", "reconciler", "main")
    result = sandbox.run("apply")
    assert result.code == 0
    assert result.err.startswith("warning: main: the status is not written: branch reconciler/status of ")
    sandbox.repo.git("branch", "-D", "reconciler")
    assert sandbox.run("apply").err == ""
    assert "key: workload/shop/web" in sandbox.status("shop/workload/web.yaml")


def test_sources_that_build_on_each_other_are_applied_in_one_go_in_any_order(tmp_path: Path) -> None:
    settings = SETTINGS.replace("sources:\n", "sources:\n  - {name: more, url: ./more, branch: main}\n")
    sandbox = CommandSandbox(tmp_path, settings=settings)
    GitRepo.create(tmp_path / "more", {"b.yaml": "kind: identity\nname: late\ngvc: shop\n"})
    result = sandbox.run("apply")
    assert (result.code, result.err) == (0, "")
    assert [line.split(" at ")[0] for line in result.out.splitlines()] == ["main: applied", "more: applied"]
