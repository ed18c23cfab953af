"""`reconciler diff` shows a pull request's effect from Git alone: no settings, no records, no network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_plan import CHANGED
from tests.support.command_sandbox import GVC, SETTINGS, SHOP, CommandResult, golden, here, workload
from tests.support.git import File, GitRepo, git


class Clone:
    """The state of a CI job: a clone, and nothing else."""

    def __init__(self, path: Path, files: dict[str, File] | None = None) -> None:
        self.origin = GitRepo.create(path / "origin", files or SHOP)
        self.path = path / "clone"
        self.absent = str(path / "none.yaml")

    def diff(self, before: str, after: str, *words: str, cwd: Path | None = None) -> CommandResult:
        if not self.path.exists():
            git(self.origin.path.parent, "clone", "--quiet", "--no-local", str(self.origin.path), str(self.path))
        return here("diff", before, after, *words, cwd=cwd or self.path, RECONCILER_SETTINGS=self.absent)


@pytest.mark.parametrize(("form", "ending"), [("text", "txt"), ("markdown", "md")])
def test_a_difference_reads_well(tmp_path: Path, form: str, ending: str) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit(CHANGED)
    result = clone.diff("HEAD~1", "HEAD", "--format", form)
    assert (result.code, result.err) == (0, "")
    golden(f"diff.{ending}", result.out)


def test_the_document_is_that_of_a_plan(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/web.yaml": workload("web", "2")})
    document = clone.diff("HEAD~1", "HEAD", "--format", "json").json
    assert [(step["action"], step["key"], step["location"]) for step in document["steps"]] == [
        ("update", "workload/shop/web", "here"),
        ("update", "workload/shop/web", "there"),
    ]
    assert document["summary"]["update"] == 1
    assert document["revision"].endswith(clone.origin.git("rev-parse", "main"))
    assert document["since"].endswith(clone.origin.git("rev-parse", "main~1"))
    [[change], _] = [step["changes"] for step in document["steps"]]
    assert change["blame"] == {
        "commit": clone.origin.git("rev-parse", "main"),
        "author": "Ada",
        "path": "shop/web.yaml",
        "line": 7,
    }


def test_diff_searches_no_history_without_blame(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/web.yaml": workload("web", "2")})
    for form in ("text", "markdown", "json"):
        assert "Ada" not in clone.diff("HEAD~1", "HEAD", "--no-blame", "--format", form).out


def test_a_clone_without_settings_is_enough_for_a_whole_process(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/web.yaml": workload("web", "2")})
    clone.diff("HEAD", "HEAD")
    ended = subprocess.run(
        [sys.executable, "-m", "reconciler.cli", "diff", "origin/main~1", "origin/main"],
        cwd=clone.path,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "~ workload/shop/web  at here, there" in ended.stdout
    assert git(clone.path, "status", "--porcelain") == "", "nothing is left behind"


def test_equal_commits_and_moved_files_differ_in_nothing(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/web.yaml": None, "shop/front/page.yaml": SHOP["shop/web.yaml"]})
    for before in ("HEAD", "HEAD~1"):
        result = clone.diff(before, "HEAD")
        assert result.code == 0
        assert result.out.endswith("\nPlan: nothing to do.\n")


def test_a_renamed_resource_is_shown_as_a_rename(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/web.yaml": str(SHOP["shop/web.yaml"]).replace("name: web", "name: page", 1)})
    assert "Renamed: workload/shop/web → workload/shop/page" in clone.diff("HEAD~1", "HEAD").out


@pytest.mark.parametrize(("before", "after", "action"), [("HEAD~1", "HEAD", "create"), ("HEAD", "HEAD~1", "delete")])
def test_a_location_that_comes_or_goes_moves_all_that_is_in_the_gvc(
    tmp_path: Path, before: str, after: str, action: str
) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/gvc.yaml": f"{GVC}      - //location/elsewhere\n"})
    steps = clone.diff(before, after, "--format", "json").json["steps"]
    assert [(step["action"], step["key"], step["location"]) for step in steps if step["key"] != "gvc/shop"] == [
        (action, key, "elsewhere")
        for key in (
            ("volumeset/shop/data", "workload/shop/api", "workload/shop/db", "workload/shop/web")
            if action == "create"
            else ("workload/shop/api", "workload/shop/db", "workload/shop/web", "volumeset/shop/data")
        )
    ]


def test_diff_marks_deletes_of_volumes_and_asks_for_no_approval(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/db.yaml": None})
    result = clone.diff("HEAD~1", "HEAD")
    assert "- volumeset/shop/data  at here, there  waits for approval: it deletes volumes" in result.out
    assert "reconciler approve" not in result.out


def test_errors_in_the_later_commit_refuse_it_and_those_in_the_earlier_do_not(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/bad.yaml": "kind: workload\nname: bad\n"})
    result = clone.diff("HEAD~1", "HEAD", "--format", "json")
    assert result.code == 1
    assert [finding["path"] for finding in result.json["findings"]] == ["shop/bad.yaml"]
    assert " is refused: 1 error\n" in clone.diff("HEAD~1", "HEAD").out
    assert clone.diff("HEAD~1", "HEAD", "--format", "markdown").out.startswith("### Refused: 1 error\n")
    assert clone.diff("HEAD", "HEAD~1").code == 0


def test_warnings_appear_in_text_and_in_markdown(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/web.yaml": workload("web", "latest")})
    text, comment = (clone.diff("HEAD~1", "HEAD", "--format", form).out for form in ("text", "markdown"))
    assert text.startswith("shop/web.yaml:7:14: warning: ")
    assert text.endswith("Why, with examples: reconciler explain image-dynamic-tag\n")
    assert comment.startswith("### Plan: 1 to update\n")
    assert "\n\n### Warnings: 1 warning\n" in comment
    assert "| `image-dynamic-tag` |" in comment


def test_manifests_may_lie_below_and_the_command_may_be_called_from_anywhere(tmp_path: Path) -> None:
    clone = Clone(tmp_path, {f"deploy/{name}": text for name, text in SHOP.items()})
    clone.origin.commit({"deploy/shop/web.yaml": workload("web", "2"), "other/x.yaml": "no: {"})
    there = clone.diff("HEAD~1", "HEAD", "--path", "deploy", "--repo", str(tmp_path / "clone"), cwd=tmp_path)
    inside = clone.diff("HEAD~1", "HEAD", "--path", "deploy", cwd=clone.path / "deploy" / "shop")
    assert there == inside
    assert there.code == 0
    assert "Plan: 1 to update." in there.out


def test_links_with_the_own_org_are_followed_where_the_org_is_known(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    link = "tags: {reconciler/depends-on: /org/acme/gvc/shop/workload/gone}\n"
    clone.origin.commit({"shop/web.yaml": workload("web", more=link)})
    assert clone.diff("HEAD~1", "HEAD").code == 0
    assert clone.diff("HEAD~1", "HEAD", "--org", "acme").code == 1


def test_diff_takes_the_source_from_the_settings(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"shop/web.yaml": workload("web", "2")})
    settings = tmp_path / "settings.yaml"
    settings.write_text(SETTINGS.replace("./manifests", "./origin"))
    result = here("diff", "main~1", "main", "--settings", "settings.yaml", cwd=tmp_path)
    assert result.code == 0
    assert result.out.startswith("main  main~1@sha1:")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (["HEAD", "nowhere"], 1, "error: source here: revision 'nowhere' is not in the repository\n"),
        (["HEAD", "HEAD", "--path", "no"], 1, "error: source here: HEAD has no directory 'no'"),
        (["nowhere"], 1, "error: source here: revision 'nowhere' is not in the repository\n"),
        (["HEAD", "HEAD", "--repo", "/nowhere"], 2, "'/nowhere' does not exist"),
    ],
)
def test_diff_names_what_it_cannot_compare(tmp_path: Path, words: list[str], code: int, complaint: str) -> None:
    clone = Clone(tmp_path)
    clone.diff("HEAD", "HEAD")
    result = here("diff", *words, cwd=clone.path, RECONCILER_SETTINGS=clone.absent)
    assert (result.code, result.out) == (code, "")
    assert complaint in result.err


def test_a_commit_without_manifests_is_an_error_and_never_a_deletion(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    clone.origin.commit({"README.md": "all gone\n"}, whole=True)
    result = clone.diff("HEAD~1", "HEAD")
    assert (result.code, result.out) == (1, "")
    assert "holds no manifest" in result.err
    assert clone.diff("HEAD", "HEAD~1").out.count("  + ") == 8, "a beginning is fine"


def test_a_repository_without_a_work_tree_will_do(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    assert clone.diff("main", "main", cwd=clone.origin.path).code == 0


def test_outside_of_any_repository_one_has_to_be_named(tmp_path: Path) -> None:
    result = here("diff", "a", "b", cwd=tmp_path, RECONCILER_SETTINGS=str(tmp_path / "none.yaml"))
    assert (result.code, result.err) == (2, f"error: {tmp_path} is not in a Git repository; name one with --repo\n")
