"""`reconciler plan` shows what a run would do, and does none of it."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.command_sandbox import GVC, SECRET, SETTINGS, CommandSandbox, golden, workload
from tests.support.git import File, GitRepo

CHANGED: dict[str, File] = {
    "secrets.yaml": SECRET.format(password="another-password"),
    "shop/gvc.yaml": GVC.replace("      - //location/there\n", ""),
    "shop/web.yaml": workload("web", "2", more="tags: {tier: front}\n"),
    "shop/report.yaml": workload("report"),
    "shop/db.yaml": None,
}
"""One of each: an update, a create, deletes at one place and of a whole resource, and volumes among them."""

FIELDS = [
    "format_version",
    "source",
    "revision",
    "digest",
    "hold_digest",
    "refusal",
    "steps",
    "retained",
    "renames",
    "summary",
    "not_enforced",
    "stops",
    "rollouts",
]
FIELDS += ["pinned", "suspended"]


def changed_sandbox(path: Path) -> CommandSandbox:
    sandbox = CommandSandbox(path)
    sandbox.applied()
    sandbox.commit(CHANGED)
    return sandbox


def contents(directory: Path) -> dict[str, str]:
    """Files below ``directory`` except what SQLite itself writes beside a database during a read."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm")))
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(("form", "ending"), [("text", "txt"), ("markdown", "md")])
def test_a_plan_reads_well(tmp_path: Path, form: str, ending: str) -> None:
    sandbox = changed_sandbox(tmp_path)
    result = sandbox.run("plan", "--format", form)
    assert (result.code, result.err) == (0, "")
    golden(f"plan.{ending}", result.out)


def test_a_first_plan_creates_everything(tmp_path: Path) -> None:
    golden("first.txt", CommandSandbox(tmp_path).run("plan", real=True).out)


def test_the_document_has_the_shape_that_scripts_rely_on(tmp_path: Path) -> None:
    plan = changed_sandbox(tmp_path).plan()
    assert list(plan) == FIELDS
    steps = {(step["action"], step["key"], step["location"]): step for step in plan["steps"]}
    web = steps["update", "workload/shop/web", "here"]
    blames = [change.pop("blame") for change in web["changes"]]
    assert [(each["author"], each["path"], each["line"]) for each in blames] == [
        ("Ada", "shop/web.yaml", 8),
        ("Ada", "shop/web.yaml", 3),
    ]
    assert web["changes"] == [
        {
            "path": "spec.containers[main].image",
            "before": "/org/acme/image/web:1",
            "after": "/org/acme/image/web:2",
            "class": "new-version",
        },
        {"path": "tags.tier", "before": None, "after": "front", "class": "in-place"},
    ]
    report = steps["create", "workload/shop/report", "here"]
    assert report["waits_for"] == ["gvc/shop"]
    assert {change["path"]: change["before"] for change in report["changes"]} == {
        "description": None,
        "spec": None,
        "tags": None,
    }
    assert steps["delete", "volumeset/shop/data", "here"]["hold"] == "deletes-volumes"
    assert steps["update", "gvc/shop", None]["waits_for"] == []
    summary = plan["summary"]
    assert (summary["create"], summary["replace"], summary["retained"]) == (1, 0, 0)
    assert {"update", "delete", "waiting"} < summary.keys()


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    before = sandbox.repo.git("for-each-ref")
    for form in ("text", "json", "markdown"):
        assert sandbox.run("plan", "--format", form).code == 0
    assert not sandbox.state.exists(), "where nothing is recorded nothing is made"
    assert sandbox.repo.git("for-each-ref") == before
    sandbox.applied()
    sandbox.commit(CHANGED)
    before, state = sandbox.repo.git("for-each-ref"), contents(sandbox.state)
    assert sandbox.run("plan", real=True).code == 0
    assert (sandbox.repo.git("for-each-ref"), contents(sandbox.state)) == (before, state)


def test_a_plan_is_the_same_bytes_whenever_it_is_made(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    first = {sandbox.run("plan", "--format", "json", real=True, PYTHONHASHSEED=seed).out for seed in "12"}
    sandbox.applied()
    sandbox.commit(CHANGED)
    second = {sandbox.run("plan", "--format", "json", real=True, PYTHONHASHSEED=seed).out for seed in "34"}
    assert len(first) == len(second) == 1


def test_another_revision_can_be_planned(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    tip = sandbox.commit(CHANGED, branch="feature", parent=sandbox.repo.git("rev-parse", "main"))
    planned = sandbox.plan("--revision", "feature")
    assert planned["revision"] == f"feature@sha1:{tip}"
    assert planned["steps"]
    assert sandbox.plan()["steps"] == []
    result = sandbox.run("plan", "--revision", "featur")
    assert result.code == 1
    assert result.err == "error: source main: revision 'featur' is not in the repository\n"


def test_an_option_makes_the_exit_code_report_changes(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    assert sandbox.run("plan").code == 0
    assert sandbox.run("plan", "--detailed-exitcode", real=True).code == 3
    sandbox.applied()
    assert sandbox.run("plan", "--detailed-exitcode").code == 0
    sandbox.commit({"shop/bad.yaml": "kind: workload\n"})
    assert sandbox.run("plan", "--detailed-exitcode").code == 1


def test_a_plan_after_an_apply_is_empty(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    assert sandbox.plan()["steps"] == []
    golden("nothing.txt", sandbox.run("plan").out)


def test_the_plan_can_be_saved_to_a_file(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    result = sandbox.run("plan", "--out", "plan.json")
    assert (result.code, result.out) == (0, sandbox.run("plan").out)
    assert json.loads((tmp_path / "plan.json").read_text()) == sandbox.plan()
    (tmp_path / "folder").mkdir()
    for target in ("folder", "nowhere/plan.json"):
        result = sandbox.run("plan", "--out", target)
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith(f"error: the plan cannot be written to {target}: ")


def test_every_form_shows_a_refused_revision(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    sandbox.commit({"shop/bad.yaml": "kind: workload\nname: bad | `odd`\n"})
    result = sandbox.run("plan", "--format", "json", "--out", "plan.json")
    assert result.code == 1
    assert list(result.json) == ["findings", "documents", "resources"]
    assert json.loads((tmp_path / "plan.json").read_text()) == result.json
    for form, ending in (("text", "txt"), ("markdown", "md")):
        result = sandbox.run("plan", "--format", form)
        assert result.code == 1
        golden(f"refused.{ending}", result.out)


def test_several_sources_are_planned_together_or_one_by_one(tmp_path: Path) -> None:
    both = SETTINGS.replace("locations:", "  - {name: extra, url: ./extra, branch: main}\nlocations:")
    sandbox = CommandSandbox(tmp_path, settings=both)
    GitRepo.create(tmp_path / "extra", {"gvc.yaml": GVC.replace("shop", "ops")})
    documents = sandbox.plan()
    assert [(document["source"], list(document)) for document in documents] == [("main", FIELDS), ("extra", FIELDS)]
    assert sandbox.plan("--source", "extra") == documents[1]
    assert sandbox.run("plan").out.count("\nPlan: ") == 2
    result = sandbox.run("plan", "--source", "extro")
    assert (result.code, result.err) == (1, "error: there is no source 'extro'; the settings have main, extra\n")


def test_on_a_fresh_host_a_source_knows_of_those_before_it(tmp_path: Path) -> None:
    late = workload("late", "nginx").replace("kind:", "gvc: shop\nkind:")
    GitRepo.create(tmp_path / "more", {"b.yaml": late}, bare=True)
    more = "  - {name: more, url: ./more, branch: main}\nlocations:"
    sandbox = CommandSandbox(tmp_path, settings=SETTINGS.replace("locations:", more))
    plans = sandbox.plan()
    assert [plan["source"] for plan in plans] == ["main", "more"]
    assert [(step["key"], step["location"]) for step in plans[1]["steps"]] == [
        ("workload/shop/late", "here"),
        ("workload/shop/late", "there"),
    ]


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_every_form_names_the_faulty_files_that_a_plan_skips(tmp_path: Path, form: str) -> None:
    sandbox = CommandSandbox(tmp_path, settings=SETTINGS + "onInvalid: skip\n")
    sandbox.applied()
    sandbox.commit({"shop/web.yaml": "kind: [", "shop/report.yaml": workload("report")})
    planned = sandbox.run("plan", "--format", form, "--detailed-exitcode")
    assert planned.code == 1
    assert "workload/shop/report" in planned.out
    assert "shop/web.yaml:1:8" in (planned.err if form == "json" else planned.out)
    if form == "json":
        assert list(json.loads(planned.out)) == FIELDS
    applied = sandbox.run("apply")
    assert applied.code == 1
    assert "Files with errors stay as they were: 1 error; the first: shop/web.yaml:1:8" in applied.out


def test_a_plan_blames_commits_unless_an_option_prevents_it(tmp_path: Path) -> None:
    sandbox = changed_sandbox(tmp_path)
    assert "shop/web.yaml:8" in sandbox.run("plan").out
    assert "shop/web.yaml" not in sandbox.run("plan", "--no-blame").out
    steps = sandbox.plan("--no-blame")["steps"]
    assert not any("blame" in change for step in steps for change in step["changes"])


def test_a_saved_plan_is_compared_by_its_steps_and_not_by_blame(tmp_path: Path) -> None:
    sandbox = changed_sandbox(tmp_path)
    assert sandbox.run("plan", "--out", "plan.json").code == 0
    assert '"blame":' in (tmp_path / "plan.json").read_text()
    sandbox.commit({"shop/late.yaml": workload("late")})
    moved = sandbox.run("apply", "--plan", "plan.json").out
    assert "now also: create workload/shop/late@here" in moved
    assert "other:" not in moved


def test_a_plan_that_was_saved_before_formats_had_versions_is_read_and_one_of_a_newer_program_is_not(
    tmp_path: Path,
) -> None:
    sandbox = changed_sandbox(tmp_path)
    sandbox.run("plan", "--out", "plan.json")
    saved = json.loads((tmp_path / "plan.json").read_text())
    newer = {**saved, "format_version": saved["format_version"] + 1}
    (tmp_path / "newer.json").write_text(json.dumps(newer))
    refused = sandbox.run("apply", "--plan", "newer.json")
    assert (refused.code, sandbox.recorded()) == (2, sandbox.recorded())
    assert f"newer.json has format version {newer['format_version']}, made by a newer reconciler" in refused.err
    former = {"held": saved.pop("hold_digest"), "kept": saved.pop("retained"), **saved}
    del former["format_version"]
    (tmp_path / "former.json").write_text(json.dumps(former))
    assert "the plan is not the one" not in sandbox.run("apply", "--plan", "former.json").out


def test_an_unreadable_source_does_not_hide_the_plan_of_another(tmp_path: Path) -> None:
    both = SETTINGS.replace("sources:\n", "sources:\n  - {name: first, url: ./first, branch: main}\n")
    sandbox = CommandSandbox(tmp_path, settings=both)
    result = sandbox.run("plan")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert result.err.startswith("error: source first: no Git repository can be read at ")
    assert "+ workload/shop/web" in result.out
    main, first = sandbox.run("plan", "--format", "json").json
    assert (main["source"], list(main)) == ("main", FIELDS)
    assert (first["source"], first["error"]["reason"]) == ("first", "SourceNotFound")
    assert "### Source `first`: no plan" in sandbox.run("plan", "--format", "markdown").out
    assert sandbox.run("plan", "--source", "first", "--format", "json").json == first
    plan = str(tmp_path / "plan.json")
    assert sandbox.run("plan", "--out", plan).code == 1
    assert sandbox.run("apply", "--plan", plan).code == 0, "what was planned can be applied"
    assert "workload/shop/web" in sandbox.recorded()
    assert "no findings in" in sandbox.run("validate").out or "warning" in sandbox.run("validate").out
    assert sandbox.run("validate").code == 1


def test_a_plan_shows_who_pinned_or_suspended_its_source_and_why(tmp_path: Path) -> None:
    sandbox = changed_sandbox(tmp_path)
    assert (sandbox.plan()["pinned"], sandbox.plan()["suspended"]) == (None, None)
    sandbox.run("rollback", "main", "main~1", "--reason", "broken release")
    sandbox.run("suspend", "main", "--reason", "freeze")
    commit = sandbox.repo.git("rev-parse", "main~1")
    text = sandbox.run("plan").out.splitlines()
    assert text[0] == f"main  sha1:{commit[:12]}"
    reason = "it does not follow its branch until: reconciler resume main"
    assert re.fullmatch(r"Source main: suspended by \S+: freeze; nothing of this plan is applied until: .*", text[-2])
    assert re.fullmatch(
        rf"Source main: \S+ rolled it back to main~1 \({commit[:12]}\): broken release; {reason}", text[-1]
    )
    assert "Source `main`: `suspended by " in sandbox.run("plan", "--format", "markdown").out
    plan = sandbox.plan()
    assert (plan["pinned"]["commit"], plan["pinned"]["why"]) == (commit, "broken release")
    assert plan["suspended"]["why"] == "freeze"
