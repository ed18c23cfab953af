"""Commands of operators and their effects: suspend, resume, roll back, retry, orphan, adopt, review."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.command_sandbox import GVC, SECRET, SETTINGS, SHOP, Desk, golden, workload

WEB = "workload/shop/web"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk whose shop is applied."""
    desk = Desk(tmp_path)
    desk.applied()
    return desk


def version(desk: Desk, name: str = "web") -> int:
    """The version of a workload as it is recorded."""
    items = desk.run("get", "workload", name, "-o", "json").json["items"]
    return int(items[0]["version"])


def reasons(desk: Desk, key: str) -> list[str]:
    """Why things happened to ``key``, oldest first."""
    lines = desk.run("events", key, "-o", "json").out.splitlines()
    return [json.loads(line)["reason"] for line in lines]


def test_a_suspended_resource_stays_as_it_is_and_the_rest_goes_on(desk: Desk) -> None:
    result = desk.run("suspend", WEB, "--reason", "a look inside")
    assert (result.code, result.err) == (0, "")
    assert "reconciler resume workload/shop/web" in result.out
    desk.commit({"shop/web.yaml": workload("web", "2"), "shop/new.yaml": workload("new")})
    ended = desk.run("apply")
    assert ended.code == 1
    assert "Suspended: suspended; to continue: reconciler resume workload/shop/web" in ended.out
    assert (version(desk), version(desk, "new")) == (1, 1)
    assert desk.plan()["summary"]["suspended"] == 1
    plan = desk.run("plan").out
    assert re.search(r"~ workload/shop/web .*suspended", plan)
    assert "Suspended" in desk.status("shop/workload/web.yaml")
    assert desk.run("resume", WEB).code == 0
    desk.applied()
    assert version(desk) == 2


def test_a_suspension_is_shown_with_author_and_reason_until_it_ends(desk: Desk) -> None:
    desk.run("suspend", WEB, "--reason", "a look inside")
    assert re.search(r"^workload/shop/web +Recorded +yes, suspended ", desk.run("get").out, re.MULTILINE)
    assert re.search(r"Suspended +True +Suspended +suspended by \S+: a look inside", desk.run("describe", WEB).out)
    desk.applied()
    assert "a look inside" in desk.status("shop/workload/web.yaml")
    desk.run("resume", WEB)
    desk.applied()
    assert "uspended" not in desk.run("get").out + desk.status("shop/workload/web.yaml")


def test_the_end_of_a_timed_suspension_is_an_event(desk: Desk) -> None:
    desk.run("suspend", WEB, "--until", "1ms", "--reason", "a look inside")
    desk.applied()
    assert reasons(desk, WEB)[-2:] == ["Suspended", "Resumed"]
    assert re.search(r"its time is over: suspended by \S+ until 20\S+Z: a look inside", desk.run("events", WEB).out)
    assert "uspended" not in desk.status("shop/workload/web.yaml")
    desk.applied()
    assert reasons(desk, WEB)[-2:] == ["Suspended", "Resumed"]


def test_get_notes_suspensions_and_rollbacks_beside_the_records(desk: Desk) -> None:
    assert desk.run("get").err == ""
    desk.run("rollback", "main", "main", "--reason", "broken release")
    desk.run("suspend", "main", "--reason", "freeze")
    notes = desk.run("get").err
    assert re.fullmatch(
        r"source main: suspended by \S+: freeze\nsource main: \S+ rolled it back to main .*: broken release\n", notes
    )
    assert desk.run("get", "-o", "json").err == ""


def test_dependents_of_a_suspended_resource_wait_for_it(desk: Desk) -> None:
    desk.run("suspend", WEB)
    tags = "tags: {reconciler/depends-on: workload/web}\n"
    desk.commit({"shop/web.yaml": workload("web", "2"), "shop/after.yaml": workload("after", more=tags)})
    assert "workload/shop/after: " not in desk.run("apply").out
    assert "workload/shop/after" not in desk.recorded()
    desk.run("resume", WEB)
    desk.applied()
    assert "workload/shop/after" in desk.recorded()


def test_a_suspended_resource_is_not_deleted(desk: Desk) -> None:
    desk.run("suspend", WEB)
    desk.commit({"shop/web.yaml": None})
    assert desk.run("apply").code == 1
    assert WEB in desk.recorded()
    desk.run("resume", WEB)
    desk.applied()
    assert WEB not in desk.recorded()


def test_nothing_of_a_suspended_source_is_applied_until_it_is_resumed(desk: Desk) -> None:
    desk.run("suspend", "main", "--reason", "freeze", "--until", "2h")
    desk.commit({"shop/web.yaml": workload("web", "2")})
    ended = desk.run("apply")
    assert ended.code == 1
    assert re.search(r"main: suspended: suspended by \S+ until 20\S+Z: freeze", ended.out)
    assert version(desk) == 1
    assert "Suspended" in desk.status("reconciler.yaml")
    desk.run("resume", "main")
    desk.applied()
    assert version(desk) == 2
    assert "Suspended" not in desk.status("reconciler.yaml")


def test_a_suspension_ends_by_itself(desk: Desk) -> None:
    desk.run("suspend", "main", "--until", "500ms")
    desk.commit({"shop/web.yaml": workload("web", "2")})
    while desk.run("apply").code:
        assert version(desk) == 1
    assert version(desk) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("suspend", "nobody"), "there is no source 'nobody'"),
        (("suspend", "workload/shop/nobody"), "there is no workload/shop/nobody"),
        (("resume", "main"), "main is neither suspended nor rolled back"),
        (("retry", WEB), "nothing of workload/shop/web has failed"),
        (("adopt", WEB), "workload/shop/web is no orphan: the source main owns it"),
        (("rollback", "main", "no-such-branch"), "revision 'no-such-branch' is not in the repository"),
        (("rollback", "other", "HEAD"), "there is no source 'other'"),
    ],
)
def test_impossible_commands_are_refused_with_a_reason(desk: Desk, words: tuple[str, ...], message: str) -> None:
    result = desk.run(*words)
    assert result.code == 1
    assert message in result.err


def test_an_end_that_is_over_is_a_mistake(desk: Desk) -> None:
    assert desk.run("suspend", "main", "--until", "2020-01-01").code == 2
    assert desk.run("suspend", "main", "--until", "soon").code == 2


def test_a_rolled_back_source_ignores_later_commits(desk: Desk) -> None:
    first = desk.repo.git("rev-parse", "main")
    desk.commit({"shop/web.yaml": workload("web", "2"), "shop/new.yaml": workload("new")})
    desk.applied()
    result = desk.run("rollback", "main", "main~1", "--reason", "broken release")
    assert (result.code, first[:12] in result.out) == (0, True)
    desk.applied()
    assert (version(desk), "workload/shop/new" in desk.recorded()) == (3, False)
    desk.commit({"shop/web.yaml": workload("web", "9")})
    desk.applied()
    assert version(desk) == 3
    assert "broken release" in desk.status("reconciler.yaml")
    assert re.search(r"\*\*Pinned\*\* .*broken release", desk.status("README.md"))
    desk.run("resume", "main")
    desk.applied()
    assert version(desk) == 4
    assert "broken release" not in desk.status("reconciler.yaml") + desk.status("README.md")


def test_an_orphan_stays_when_it_leaves_git_until_it_is_adopted(desk: Desk) -> None:
    desk.run("orphan", WEB)
    desk.commit({"shop/web.yaml": None})
    desk.applied()
    assert WEB in desk.recorded()
    assert "made it an orphan" in desk.run("plan").out
    desk.run("adopt", WEB)
    desk.applied()
    assert WEB not in desk.recorded()
    assert reasons(desk, WEB)[-4:] == ["Orphaned", "Adopted", "Deleted", "Deleted"]


def test_resources_of_a_removed_source_belong_to_the_one_that_adopts_them(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.applied()
    desk.settings.write_text(SETTINGS.replace("name: main", "name: other"))
    desk.commit({"shop/web.yaml": None})
    desk.run("apply")
    assert WEB in desk.recorded(), "the source that asked for it is gone, which is no reason to delete anything"
    assert desk.run("adopt", WEB).code == 0
    desk.applied()
    assert WEB not in desk.recorded()


def test_apply_carries_out_a_saved_plan_or_reports_what_moved(desk: Desk) -> None:
    desk.commit({"shop/web.yaml": workload("web", "2")})
    assert desk.run("plan", "--out", "plan.json").code == 0
    desk.commit({"shop/api.yaml": f"kind: identity\nname: api\n---\n{workload('api', '7')}"})
    moved = desk.run("apply", "--plan", "plan.json")
    assert moved.code == 1
    assert "the plan is not the one that was saved: now also: update workload/shop/api@here" in moved.out
    assert (version(desk), version(desk, "api")) == (1, 1)
    desk.run("plan", "--out", "plan.json")
    assert desk.run("apply", "--plan", "plan.json").code == 0
    assert (version(desk), version(desk, "api")) == (2, 2)


def test_a_plan_that_was_read_before_anything_was_applied_is_carried_out(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.run("plan", "--out", "plan.json").code == 0
    desk.commit({"secrets.yaml": SECRET.format(password="another")})
    moved = desk.run("apply", "--plan", "plan.json")
    assert (moved.code, desk.recorded()) == (1, set())
    desk.run("plan", "--out", "plan.json")
    assert desk.run("apply", "--plan", "plan.json").code == 0
    assert "secret/db" in desk.recorded()


def test_a_file_that_is_no_plan_is_a_mistake(desk: Desk) -> None:
    (desk.path / "plan.json").write_text("{}")
    result = desk.run("apply", "--plan", "plan.json")
    assert (result.code, "contains no plan" in result.err) == (2, True)
    assert desk.run("apply", "--plan", "nowhere.json").code == 2


@pytest.mark.parametrize(("mode", "waiting"), [("never", 0), ("deletes", 1), ("always", 2)])
def test_the_settings_decide_what_waits_for_approval(desk: Desk, mode: str, waiting: int) -> None:
    desk.settings.write_text(f"{SETTINGS}approval: {mode}\n")
    desk.commit({"shop/web.yaml": None, "shop/new.yaml": workload("new")})
    plan = desk.plan()
    assert plan["summary"]["waiting"] == waiting
    desk.run("apply")
    desk.run("apply")
    holds = [each for each in desk.run("events").out.splitlines() if " ApprovalRequired " in each]
    assert len(holds) == (waiting > 0), "reported once, until something else waits"
    assert not waiting or holds[0].endswith(f"for: reconciler approve {plan['hold_digest']}")
    assert (WEB in desk.recorded(), "workload/shop/new" in desk.recorded()) == (waiting > 0, waiting < 2)
    if waiting:
        result = desk.run("approve", plan["hold_digest"])
        assert re.search(r"^approved \S+ as \S+, until 20\S+Z\n", result.out)
        desk.applied()
        assert (WEB in desk.recorded(), "workload/shop/new" in desk.recorded()) == (False, True)
        assert "Approved" in desk.run("events", "-o", "json").out


def test_a_delete_that_waits_at_a_former_location_makes_the_gvc_unready(desk: Desk) -> None:
    desk.commit({"shop/gvc.yaml": GVC.replace("      - //location/there\n", "")})
    desk.run("apply")
    waiting = {"api", "db", "web", "data"}
    ready = {each.split()[0].rpartition("/")[2]: each.split()[2] for each in desk.run("get").out.splitlines()[1:]}
    assert {name for name, words in ready.items() if words == "ApprovalRequired"} == waiting
    assert "4 not ready" in desk.status("README.md")
    assert "ApprovalRequired" in desk.status("shop/volumeset/data.yaml")
    desk.commit({"shop/web.yaml": f"# again\n{workload('web')}"})
    desk.run("apply")
    assert "4 not ready" in desk.status("README.md")
    desk.run("approve", desk.plan()["hold_digest"])
    desk.applied()
    assert "none not ready" in desk.status("README.md")
    assert "ApprovalRequired" not in desk.run("get").out


def test_a_plan_that_is_carried_out_cannot_be_approved_again(desk: Desk) -> None:
    desk.settings.write_text(f"{SETTINGS}approval: deletes\n")
    desk.commit({"shop/web.yaml": None})
    desk.run("apply")
    digest = desk.plan()["hold_digest"]
    assert desk.run("approve", digest).code == 0
    desk.applied()
    result = desk.run("approve", digest)
    assert (result.code, "nothing waits now" in result.err) == (1, True)


def test_an_approval_that_is_too_old_is_void(desk: Desk) -> None:
    desk.settings.write_text(f"{SETTINGS}approval: deletes\napprovalLasts: 1ms\n")
    desk.commit({"shop/web.yaml": None})
    desk.run("approve", desk.plan()["hold_digest"])
    assert desk.run("apply").code == 1
    assert WEB in desk.recorded()


def test_the_history_shows_author_commit_and_outcome_of_each_run(desk: Desk) -> None:
    desk.commit({"shop/web.yaml": workload("web", "2")}, message="Serve the new page")
    desk.applied()
    newest, first = desk.run("history", "-o", "json").json["items"]
    assert newest["subject"] == "Serve the new page"
    assert newest["author"]
    assert (newest["outcome"], newest["counts"], newest["source"]) == ("applied", {"updated": 1}, "main")
    assert newest["seconds"] >= 0
    assert first["run"] < newest["run"]
    text = desk.run("history", "main", "--last", "1").out
    assert re.fullmatch(r"[^\n]*Serve the new page[^\n]*\n", text)
    assert desk.run("history", "other").code == 1


def test_sync_fails_without_a_daemon(desk: Desk) -> None:
    result = desk.run("sync")
    assert (result.code, "no daemon runs here" in result.err) == (1, True)


def test_suspend_fails_without_records(tmp_path: Path) -> None:
    desk = Desk(tmp_path, SHOP)
    result = desk.run("suspend", "main")
    assert (result.code, "nothing has been applied here" in result.err) == (1, True)
    assert not desk.state.exists()


def test_the_words_of_operators_are_answered_as_they_always_were(desk: Desk) -> None:
    desk.commit({"shop/web.yaml": workload("web", "2")}, message="Serve the new page")
    desk.applied()
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
    transcript = "".join(f"$ reconciler {' '.join(words)}\n{desk.run(*words).out}" for words in commands)
    transcript = re.sub(r"20\d\d-\d\d-\d\dT[\d:]+Z", "<time>", transcript)
    transcript = re.sub(r"suspended by \S+", "suspended by <who>", transcript)
    golden("operations.txt", re.sub(r" +\d+\.\d s", " <seconds> s", re.sub(r"\b[0-9a-f]{12}\b", "<id>", transcript)))
