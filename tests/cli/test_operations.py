"""Commands of operators and their effects: suspend, resume, roll back, retry, orphan, adopt, review."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.command_sandbox import GVC, SECRET, SETTINGS, SHOP, CommandSandbox, golden, workload

WEB = "workload/shop/web"


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """A sandbox whose shop is applied."""
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    return sandbox


def version(sandbox: CommandSandbox, name: str = "web") -> int:
    """The version of a workload as it is recorded."""
    return int(sandbox.run("get", "workload", name, "-o", "json").json["version"])


def reasons(sandbox: CommandSandbox, key: str) -> list[str]:
    """Why things happened to ``key``, oldest first."""
    lines = sandbox.run("events", key, "-o", "json").out.splitlines()
    return [json.loads(line)["reason"] for line in lines]


def test_a_suspended_resource_stays_as_it_is_and_the_rest_goes_on(sandbox: CommandSandbox) -> None:
    result = sandbox.run("suspend", WEB, "--reason", "a look inside")
    assert (result.code, result.err) == (0, "")
    assert "reconciler resume workload/shop/web" in result.out
    sandbox.commit({"shop/web.yaml": workload("web", "2"), "shop/new.yaml": workload("new")})
    ended = sandbox.run("apply")
    assert ended.code == 1
    assert "Suspended: suspended; to continue: reconciler resume workload/shop/web" in ended.out
    assert (version(sandbox), version(sandbox, "new")) == (1, 1)
    assert sandbox.plan()["summary"]["suspended"] == 1
    plan = sandbox.run("plan").out
    assert re.search(r"~ workload/shop/web .*suspended", plan)
    assert "Suspended" in sandbox.status("shop/workload/web.yaml")
    assert sandbox.run("resume", WEB).code == 0
    sandbox.applied()
    assert version(sandbox) == 2


def test_a_suspension_is_shown_with_author_and_reason_until_it_ends(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", WEB, "--reason", "a look inside")
    [line] = sandbox.run("get", "workload", "web", "--no-headers").out.splitlines()
    assert re.match(r"workload/shop/web +Recorded +yes .* Suspended: suspended by ", line)
    assert re.search(r"Suspended +True +Suspended +suspended by \S+: a look inside", sandbox.run("describe", WEB).out)
    sandbox.applied()
    assert "a look inside" in sandbox.status("shop/workload/web.yaml")
    sandbox.run("resume", WEB)
    sandbox.applied()
    assert "uspended" not in sandbox.run("get").out + sandbox.status("shop/workload/web.yaml")


def test_the_end_of_a_timed_suspension_is_an_event(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", WEB, "--until", "1ms", "--reason", "a look inside")
    sandbox.applied()
    assert reasons(sandbox, WEB)[-2:] == ["Suspended", "Resumed"]
    assert re.search(r"its time is over: suspended by \S+ until 20\S+Z: a look inside", sandbox.run("events", WEB).out)
    assert "uspended" not in sandbox.status("shop/workload/web.yaml")
    sandbox.applied()
    assert reasons(sandbox, WEB)[-2:] == ["Suspended", "Resumed"]


def test_get_notes_suspensions_and_rollbacks_beside_the_records(sandbox: CommandSandbox) -> None:
    assert sandbox.run("get").err == ""
    sandbox.run("rollback", "main", "main", "--reason", "broken release")
    sandbox.run("suspend", "main", "--reason", "freeze")
    notes = sandbox.run("get").err
    assert re.fullmatch(
        r"source main: suspended by \S+: freeze\nsource main: \S+ rolled it back to main .*: broken release\n", notes
    )
    assert sandbox.run("get", "-o", "json").err == ""


def test_dependents_of_a_suspended_resource_wait_for_it(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", WEB)
    tags = "tags: {reconciler/depends-on: workload/web}\n"
    sandbox.commit({"shop/web.yaml": workload("web", "2"), "shop/after.yaml": workload("after", more=tags)})
    assert "workload/shop/after: " not in sandbox.run("apply").out
    assert "workload/shop/after" not in sandbox.recorded()
    sandbox.run("resume", WEB)
    sandbox.applied()
    assert "workload/shop/after" in sandbox.recorded()


def test_a_suspended_resource_is_not_deleted(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", WEB)
    sandbox.commit({"shop/web.yaml": None})
    assert sandbox.run("apply").code == 1
    assert WEB in sandbox.recorded()
    sandbox.run("resume", WEB)
    sandbox.applied()
    assert WEB not in sandbox.recorded()


def test_nothing_of_a_suspended_source_is_applied_until_it_is_resumed(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", "main", "--reason", "freeze", "--until", "2h")
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    ended = sandbox.run("apply")
    assert ended.code == 1
    assert re.search(r"main: suspended: suspended by \S+ until 20\S+Z: freeze", ended.out)
    assert version(sandbox) == 1
    assert "Suspended" in sandbox.status("reconciler.yaml")
    sandbox.run("resume", "main")
    sandbox.applied()
    assert version(sandbox) == 2
    assert "Suspended" not in sandbox.status("reconciler.yaml")


def test_a_suspension_ends_by_itself(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", "main", "--until", "500ms")
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    while sandbox.run("apply").code:
        assert version(sandbox) == 1
    assert version(sandbox) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("suspend", "nobody"), "there is no resource or source 'nobody'"),
        (("suspend", "workload/shop/nobody"), "there is no workload/shop/nobody"),
        (("resume", "main"), "main is neither suspended nor rolled back"),
        (("retry", WEB), "nothing of workload/shop/web has failed"),
        (("adopt", WEB), "workload/shop/web is no orphan: the source main owns it"),
        (("rollback", "main", "no-such-branch"), "revision 'no-such-branch' is not in the repository"),
        (("rollback", "other", "HEAD"), "there is no resource or source 'other'"),
    ],
)
def test_impossible_commands_are_refused_with_a_reason(
    sandbox: CommandSandbox, words: tuple[str, ...], message: str
) -> None:
    result = sandbox.run(*words)
    assert result.code == 1
    assert message in result.err


def test_an_end_that_is_over_is_a_mistake(sandbox: CommandSandbox) -> None:
    assert sandbox.run("suspend", "main", "--until", "2020-01-01").code == 2
    assert sandbox.run("suspend", "main", "--until", "soon").code == 2


def test_a_rolled_back_source_ignores_later_commits(sandbox: CommandSandbox) -> None:
    first = sandbox.repo.git("rev-parse", "main")
    sandbox.commit({"shop/web.yaml": workload("web", "2"), "shop/new.yaml": workload("new")})
    sandbox.applied()
    result = sandbox.run("rollback", "main", "main~1", "--reason", "broken release")
    assert (result.code, first[:12] in result.out) == (0, True)
    sandbox.applied()
    assert (version(sandbox), "workload/shop/new" in sandbox.recorded()) == (3, False)
    sandbox.commit({"shop/web.yaml": workload("web", "9")})
    sandbox.applied()
    assert version(sandbox) == 3
    assert "broken release" in sandbox.status("reconciler.yaml")
    assert re.search(r"\*\*Pinned\*\* .*broken release", sandbox.status("README.md"))
    sandbox.run("resume", "main")
    sandbox.applied()
    assert version(sandbox) == 4
    assert "broken release" not in sandbox.status("reconciler.yaml") + sandbox.status("README.md")


def test_an_orphan_stays_when_it_leaves_git_until_it_is_adopted(sandbox: CommandSandbox) -> None:
    sandbox.run("orphan", WEB)
    sandbox.commit({"shop/web.yaml": None})
    sandbox.applied()
    assert WEB in sandbox.recorded()
    assert "made it an orphan" in sandbox.run("plan").out
    sandbox.run("adopt", WEB)
    sandbox.applied()
    assert WEB not in sandbox.recorded()
    assert reasons(sandbox, WEB)[-4:] == ["Orphaned", "Adopted", "Deleted", "Deleted"]


def test_resources_of_a_removed_source_belong_to_the_one_that_adopts_them(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    sandbox.settings.write_text(SETTINGS.replace("name: main", "name: other"))
    sandbox.commit({"shop/web.yaml": None})
    sandbox.run("apply")
    assert WEB in sandbox.recorded(), "the source that asked for it is gone, which is no reason to delete anything"
    assert sandbox.run("adopt", WEB).code == 0
    sandbox.applied()
    assert WEB not in sandbox.recorded()


def test_apply_carries_out_a_saved_plan_or_reports_what_moved(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/web.yaml": workload("web", "2")})
    assert sandbox.run("plan", "--out", "plan.json").code == 0
    sandbox.commit({"shop/api.yaml": f"kind: identity\nname: api\n---\n{workload('api', '7')}"})
    moved = sandbox.run("apply", "--plan", "plan.json")
    assert moved.code == 1
    assert "the plan is not the one that was saved: now also: update workload/shop/api@here" in moved.out
    assert (version(sandbox), version(sandbox, "api")) == (1, 1)
    sandbox.run("plan", "--out", "plan.json")
    assert sandbox.run("apply", "--plan", "plan.json").code == 0
    assert (version(sandbox), version(sandbox, "api")) == (2, 2)


def test_a_plan_that_was_read_before_anything_was_applied_is_carried_out(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    assert sandbox.run("plan", "--out", "plan.json").code == 0
    sandbox.commit({"secrets.yaml": SECRET.format(password="another")})
    moved = sandbox.run("apply", "--plan", "plan.json")
    assert (moved.code, sandbox.recorded()) == (1, set())
    sandbox.run("plan", "--out", "plan.json")
    assert sandbox.run("apply", "--plan", "plan.json").code == 0
    assert "secret/db" in sandbox.recorded()


def test_a_file_that_is_no_plan_is_a_mistake(sandbox: CommandSandbox) -> None:
    (sandbox.path / "plan.json").write_text("{}")
    result = sandbox.run("apply", "--plan", "plan.json")
    assert (result.code, "contains no plan" in result.err) == (2, True)
    assert sandbox.run("apply", "--plan", "nowhere.json").code == 2


@pytest.mark.parametrize(("mode", "waiting"), [("never", 0), ("deletes", 1), ("always", 2)])
def test_the_settings_decide_what_waits_for_approval(sandbox: CommandSandbox, mode: str, waiting: int) -> None:
    sandbox.settings.write_text(f"{SETTINGS}approval: {mode}\n")
    sandbox.commit({"shop/web.yaml": None, "shop/new.yaml": workload("new")})
    plan = sandbox.plan()
    assert plan["summary"]["waiting"] == waiting
    sandbox.run("apply")
    sandbox.run("apply")
    holds = [each for each in sandbox.run("events").out.splitlines() if " ApprovalRequired " in each]
    assert len(holds) == (waiting > 0), "reported once, until something else waits"
    assert not waiting or holds[0].endswith(f"for: reconciler approve {plan['hold_digest'][:12]}")
    assert (WEB in sandbox.recorded(), "workload/shop/new" in sandbox.recorded()) == (waiting > 0, waiting < 2)
    if waiting:
        result = sandbox.run("approve", plan["hold_digest"])
        assert re.search(r"^approved \S+ as \S+, until 20\S+Z\n", result.out)
        sandbox.applied()
        assert (WEB in sandbox.recorded(), "workload/shop/new" in sandbox.recorded()) == (False, True)
        assert "Approved" in sandbox.run("events", "-o", "json").out


def test_a_delete_that_waits_at_a_former_location_makes_the_gvc_unready(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/gvc.yaml": GVC.replace("      - //location/there\n", "")})
    sandbox.run("apply")
    waiting = {"api", "db", "web", "data"}
    lines = [each.split() for each in sandbox.run("get", "--no-headers").out.splitlines()]
    messages = {words[0].rpartition("/")[2]: words[5:] for words in lines}
    assert {name for name, words in messages.items() if words[:1] == ["ApprovalRequired:"]} == waiting
    assert "4 not ready" in sandbox.status("README.md")
    assert "ApprovalRequired" in sandbox.status("shop/volumeset/data.yaml")
    sandbox.commit({"shop/web.yaml": f"# again\n{workload('web')}"})
    sandbox.run("apply")
    assert "4 not ready" in sandbox.status("README.md")
    sandbox.run("approve", sandbox.plan()["hold_digest"])
    sandbox.applied()
    assert "none not ready" in sandbox.status("README.md")
    assert "ApprovalRequired" not in sandbox.run("get").out


def test_a_plan_that_is_carried_out_cannot_be_approved_again(sandbox: CommandSandbox) -> None:
    sandbox.settings.write_text(f"{SETTINGS}approval: deletes\n")
    sandbox.commit({"shop/web.yaml": None})
    sandbox.run("apply")
    digest = sandbox.plan()["hold_digest"]
    assert sandbox.run("approve", digest).code == 0
    sandbox.applied()
    result = sandbox.run("approve", digest)
    assert (result.code, "nothing waits now" in result.err) == (1, True)


def test_an_approval_that_is_too_old_is_void(sandbox: CommandSandbox) -> None:
    sandbox.settings.write_text(f"{SETTINGS}approval: deletes\napprovalLasts: 1ms\n")
    sandbox.commit({"shop/web.yaml": None})
    sandbox.run("approve", sandbox.plan()["hold_digest"])
    assert sandbox.run("apply").code == 1
    assert WEB in sandbox.recorded()


def test_the_history_shows_author_commit_and_outcome_of_each_run(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/web.yaml": workload("web", "2")}, message="Serve the new page")
    sandbox.applied()
    newest, first = sandbox.run("history", "-o", "json").json["items"]
    assert newest["subject"] == "Serve the new page"
    assert newest["author"]
    assert (newest["outcome"], newest["counts"], newest["source"]) == ("applied", {"updated": 1}, "main")
    assert newest["seconds"] >= 0
    assert first["run"] < newest["run"]
    text = sandbox.run("history", "main", "--last", "1").out
    assert re.fullmatch(r"[^\n]*Serve the new page[^\n]*\n", text)
    assert sandbox.run("history", "other").code == 1


def test_a_run_of_the_history_has_its_phases_and_steps(sandbox: CommandSandbox) -> None:
    (newest, *_) = sandbox.run("history", "-o", "json").json["items"]
    asked = ("history", "--run", str(newest["run"]))
    (run,) = sandbox.run(*asked, "-o", "json").json["items"]
    assert {"load", "plan", "step"} <= {phase["phase"] for phase in run["phases"]}
    steps = [phase for phase in run["phases"] if phase["phase"] == "step"]
    assert len({step["key"] for step in steps}) == sum(newest["counts"].values())
    assert all(phase["result"] == "ok" and phase["seconds"] >= 0 for phase in run["phases"])
    text = sandbox.run(*asked).out
    assert f"{steps[0]['action']} {steps[0]['key']}" in text
    refused = sandbox.run("history", "--run", "999")
    assert (refused.code, "there is no run 999" in refused.err) == (1, True)


def test_a_plan_that_waits_is_listed_once_in_the_history(sandbox: CommandSandbox) -> None:
    def outcomes() -> list[tuple[str, dict[str, int]]]:
        return [(run["outcome"], run["counts"]) for run in sandbox.run("history", "-o", "json").json["items"]]

    first = ("applied", {"created": 8})
    sandbox.commit({"shop/db.yaml": None})
    for _ in range(3):
        assert sandbox.run("apply").code == 1
    assert outcomes() == [("waiting", {"waiting": 2}), first]
    sandbox.commit({"shop/late.yaml": workload("late")})
    for _ in range(3):
        assert sandbox.run("apply").code == 1
    newer = [("waiting", {"waiting": 2}), ("waiting", {"created": 1, "waiting": 2})]
    assert outcomes() == [*newer, ("waiting", {"waiting": 2}), first], "what a run has done stays"


def test_the_newest_line_of_the_history_is_the_commit_that_is_live(sandbox: CommandSandbox) -> None:
    def lines() -> list[tuple[str, str]]:
        return [(run["outcome"], run["subject"]) for run in sandbox.run("history", "-o", "json").json["items"]]

    good = sandbox.repo.git("show", "main:shop/web.yaml")
    (first,) = lines()
    sandbox.commit({"shop/web.yaml": good.replace("kind:", "knd:")}, message="Mistype a field")
    assert sandbox.run("apply").code == 1
    sandbox.commit({"shop/web.yaml": good}, message="Revert")
    sandbox.applied()
    refused = ("refused", "Mistype a field")
    assert lines() == [("unchanged", "Revert"), refused, first]
    newest, *_ = sandbox.run("history", "-o", "json").json["items"]
    assert newest["counts"] == {}
    assert "nothing to do" in sandbox.run("history", "--last", "1").out
    phases = sandbox.run("history", "--run", str(newest["run"]), "-o", "json").json["items"][0]["phases"]
    assert "plan" in {phase["phase"] for phase in phases}

    for subject in ("Describe the shop", "Describe it better"):
        sandbox.commit({"notes.txt": subject}, message=subject)
        sandbox.applied()
    sandbox.applied()
    assert lines() == [("unchanged", "Describe it better"), refused, first], "commits in a row without changes"
    sandbox.commit({"shop/web.yaml": workload("web", "2")}, message="Release 2")
    sandbox.applied()
    assert lines()[:2] == [("applied", "Release 2"), ("unchanged", "Describe it better")]


def test_a_source_that_can_be_read_again_is_the_newest_line_of_the_history(sandbox: CommandSandbox) -> None:
    def outcomes() -> list[str]:
        return [run["outcome"] for run in sandbox.run("history", "-o", "json").json["items"]]

    sandbox.repo.git("branch", "--move", "main", "away")
    assert sandbox.run("apply").code == 1
    assert outcomes() == ["unreadable", "applied"]
    sandbox.repo.git("branch", "--move", "away", "main")
    sandbox.applied()
    sandbox.applied()
    assert outcomes() == ["unchanged", "unreadable", "applied"]


def test_sync_fails_without_a_daemon(sandbox: CommandSandbox) -> None:
    result = sandbox.run("sync")
    assert (result.code, "no daemon runs here" in result.err) == (1, True)


def test_suspend_fails_without_records(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path, SHOP)
    result = sandbox.run("suspend", "main")
    assert (result.code, "nothing has been applied here" in result.err) == (1, True)
    assert not sandbox.state.exists()


def test_the_words_of_operators_are_answered_as_they_always_were(sandbox: CommandSandbox) -> None:
    sandbox.commit({"shop/web.yaml": workload("web", "2")}, message="Serve the new page")
    sandbox.applied()
    commands = [
        ("suspend", WEB, "--until", "2h", "--reason", "a look inside"),
        ("resume", WEB),
        ("rollback", "main", "main~1", "--reason", "broken release"),
        ("suspend", "main"),
        ("apply",),
        ("resume", "main"),
        ("orphan", WEB),
        ("adopt", WEB),
        ("history",),
    ]
    transcript = "".join(f"$ reconciler {' '.join(words)}\n{sandbox.run(*words).out}" for words in commands)
    transcript = re.sub(r"20\d\d-\d\d-\d\dT[\d:]+Z", "<time>", transcript)
    transcript = re.sub(r"suspended by \S+", "suspended by <who>", transcript)
    golden("operations.txt", re.sub(r" +\d+\.\d s", " <seconds> s", re.sub(r"\b[0-9a-f]{12}\b", "<id>", transcript)))
