"""`reconciler validate` reports every fault of files on disk, or of a revision."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from reconciler.documents.schema.loader import find_shipped_path
from tests.support.command_sandbox import GVC, SETTINGS, SHOP, CommandResult, CommandSandbox, golden, here, workload
from tests.support.git import GitRepo

FAULTY = {
    "shop/gvc.yaml": str(SHOP["shop/gvc.yaml"]).replace("name: shop", "name: shop\nalias: abcdefghijklm"),
    "shop/api.yaml": workload(more="descripton: typed in a hurry\n"),
    "shop/web.yaml": workload("web").replace("standard", "standrd"),
    "shop/copied.yaml": workload("copy"),
    "shop/copy.yaml": workload("copy"),
    "broken.yaml": "kind: gvc\nname: [\n",
}


def lay(path: Path, files: Mapping[str, object]) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(str(text))
    return path


def validate(path: Path, *words: str, **environ: str) -> CommandResult:
    """Without any settings."""
    return here("validate", *words, cwd=path, RECONCILER_SETTINGS=str(path / "none.yaml"), **environ)


def test_several_paths_are_checked_each_file_once(tmp_path: Path) -> None:
    lay(tmp_path, FAULTY)
    (tmp_path / ".git").mkdir()
    result = validate(tmp_path, "broken.yaml", "shop/api.yaml", "shop", "./shop")
    assert result.out.count("shop/api.yaml:") == validate(tmp_path, "shop").out.count("shop/api.yaml:") == 1
    assert "broken.yaml:3:" in result.out
    assert result.out.splitlines()[-2].startswith("4 errors")


def test_sound_files_need_neither_git_nor_settings(tmp_path: Path) -> None:
    lay(tmp_path / "m", SHOP)
    assert validate(tmp_path, "m") == (0, "no findings in 8 documents, 8 resources\n", "")
    document = validate(tmp_path, "m", "--format", "json").json
    assert document == {"findings": [], "documents": 8, "resources": 8}


def test_every_fault_is_reported_with_its_place_and_a_way_out(tmp_path: Path) -> None:
    lay(tmp_path / "m", FAULTY)
    result = validate(tmp_path, "m")
    assert (result.code, result.err) == (1, "")
    golden("faults.txt", result.out)


def test_the_document_has_exactly_these_fields(tmp_path: Path) -> None:
    lay(tmp_path / "m", FAULTY)
    result = validate(tmp_path, "m", "--format", "json")
    assert result.code == 1
    assert list(result.json) == ["findings", "documents", "resources"]
    names = ["rule", "severity", "path", "line", "column", "message", "suggestion", "key", "page"]
    assert all(list(finding) == names for finding in result.json["findings"])
    duplicate = next(each for each in result.json["findings"] if each["rule"] == "duplicate-resource")
    assert (duplicate["path"], duplicate["line"], duplicate["key"]) == ("m/shop/copy.yaml", 1, "workload/shop/copy")
    assert duplicate["page"] == "docs/rules.md#duplicate-resource"


def test_only_errors_make_the_exit_code_1(tmp_path: Path) -> None:
    lay(tmp_path, {"shop/gvc.yaml": FAULTY["shop/gvc.yaml"]})
    result = validate(tmp_path, ".")
    assert result.code == 0
    assert ": notice: " in result.out
    assert "1 notice in 1 document, 1 resource\n" in result.out


def test_a_single_file_is_judged_among_its_neighbours(tmp_path: Path) -> None:
    lay(tmp_path, SHOP)
    (tmp_path / ".git").mkdir()
    assert validate(tmp_path, "shop/api.yaml") == (0, "no findings in 2 documents, 2 resources\n", "")
    (tmp_path / "secrets.yaml").unlink()
    result = validate(tmp_path, "shop/api.yaml")
    assert result.code == 1
    assert result.out.startswith("shop/api.yaml:13:37: error: ")
    assert "refers to secret/db, which does not exist" in result.out
    assert validate(tmp_path, "shop/web.yaml").code == 0, "faults of the neighbours are none of its own"


def test_a_directory_is_judged_among_its_neighbours(tmp_path: Path) -> None:
    lay(tmp_path, {**SHOP, "old/x.yaml": "kind: nonsense", "shop/more/web.yaml": workload("more")})
    (tmp_path / ".git").mkdir()
    assert validate(tmp_path, "shop/more") == (0, "no findings in 1 document, 1 resource\n", "")
    assert validate(tmp_path, "shop").code == 0, "what it links to lies beside it"
    (tmp_path / "secrets.yaml").unlink()
    result = validate(tmp_path, "shop")
    assert (result.code, result.out.split(":")[0]) == (1, "shop/api.yaml")
    assert "nonsense" not in result.out, "faults of the neighbours are none of its own"
    from_inside = here("validate", ".", cwd=tmp_path / "shop")
    assert from_inside.out.startswith("api.yaml:13:37: error: ")


@pytest.mark.parametrize(("asked", "other"), [("a", "b"), ("b", "a")])
def test_a_duplicate_in_a_parent_folder_is_a_fault_of_both(tmp_path: Path, asked: str, other: str) -> None:
    lay(tmp_path, {"gvc.yaml": GVC, "a/web.yaml": workload(), "b/web.yaml": workload()})
    (tmp_path / ".git").mkdir()
    twice = f"{asked}/web.yaml:1:1: error: workload/shop/api is declared twice: here and at {other}/web.yaml:1 "
    for path in (asked, f"{asked}/web.yaml"):
        assert twice in validate(tmp_path, path).out


@pytest.mark.parametrize("mark", ["git", "ignore", "source"])
def test_the_surroundings_end_where_the_manifests_begin(tmp_path: Path, mark: str) -> None:
    lay(tmp_path, {"m/shop/gvc.yaml": GVC, "m/shop/deep/api.yaml": workload(), "gvc.yaml": GVC})
    if mark == "source":
        (tmp_path / "settings.yaml").write_text(SETTINGS.replace("./manifests", "., path: m"))
        result = here("validate", "m/shop/deep", cwd=tmp_path)
    else:
        (tmp_path / {"git": "m/.git", "ignore": "m/.reconcilerignore"}[mark]).touch()
        result = validate(tmp_path, "m/shop/deep")
    assert "declared twice" not in result.out
    assert result.code == 0, result.out


def test_paths_are_those_that_open_the_file_from_here(tmp_path: Path) -> None:
    lay(tmp_path, {"m/shop/gvc.yaml": GVC, "m/shop/a.yaml": workload("copy"), "m/shop/b.yaml": workload("copy")})
    twice = "workload/shop/copy is declared twice: here and at"
    assert f"m/shop/b.yaml:1:1: error: {twice} m/shop/a.yaml:1 " in validate(tmp_path, "m").out
    (tmp_path / "elsewhere").mkdir()
    away = here("validate", "../m", cwd=tmp_path / "elsewhere")
    assert f"{tmp_path}/m/shop/b.yaml:1:1: error: {twice} {tmp_path}/m/shop/a.yaml:1 " in away.out
    (tmp_path / ".git").mkdir()
    forge = validate(tmp_path, "m", "--format", "github")
    assert "file=m/shop/b.yaml," in forge.out


def test_a_single_file_without_neighbours_stands_for_itself(tmp_path: Path) -> None:
    lay(tmp_path, {"api.yaml": workload(), "gvc.txt": "no manifest"})
    result = validate(tmp_path, "api.yaml", "--format", "json")
    assert (result.code, [each["rule"] for each in result.json["findings"]]) == (1, ["gvc-missing"])


def test_odd_files_are_judged_as_a_commit_of_them_would_be(tmp_path: Path) -> None:
    lay(tmp_path / "m", {"gvc.yaml": SHOP["shop/gvc.yaml"], ".reconcilerignore": "old/\n", "old/x.yaml": "no: {"})
    (tmp_path / "m" / "linked.yaml").symlink_to("gvc.yaml")
    (tmp_path / "m" / "two\nlines.yaml").touch()
    (tmp_path / "m" / ".hidden").mkdir()
    (tmp_path / "m" / ".hidden" / "x.yaml").write_text("no: {")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/m/latin-\xe9.yaml")).touch()
    os.mkfifo(tmp_path / "m" / "pipe.yaml")
    result = validate(tmp_path, "m", "--format", "json")
    found = {(each["path"], each["rule"]) for each in result.json["findings"]}
    assert found == {
        ("m/linked.yaml", "symlink"),
        ("m/two\\nlines.yaml", "file-name"),
        ("m/latin-\\xe9.yaml", "file-name"),
    }
    assert "m/two\\nlines.yaml: error: " in validate(tmp_path, "m").out, "the file as a whole has no line"


JSON_FILES = {
    "m/shop/gvc.json": json.dumps(yaml.safe_load(GVC)),
    "m/shop/all.json": '[\n\t{"kind": "identity", "name": "a"},\n\t{"kind": "identity", "name": "b", "tag": {}}\n]\n',
    "m/package.json": '{"name": "web", "kind": "app"}',
    "m/broken.json": '{"name": ',
    "m/tsconfig.json": "{\n  // comment\n}",
    "m/other/state.json": '{"resources": [{"kind": "secret", "name": "db"}]}',
}


def test_manifests_in_json_are_checked_and_other_files_in_json_are_not(tmp_path: Path) -> None:
    lay(tmp_path, JSON_FILES)
    (tmp_path / "m" / "linked.json").symlink_to("shop/all.json")
    (tmp_path / "m" / "dangling.json").symlink_to("nowhere")
    (tmp_path / "m" / "folder.json").symlink_to("shop")
    os.mkfifo(tmp_path / "m" / "pipe.json")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/m/latin-\xe9.json")).write_text('{"kind": "group", "name": "x", 5}')
    for path in ("m", "m/shop", "m/shop/all.json"):
        result = validate(tmp_path, path, "--format", "json")
        assert [(each["path"], each["rule"], each["line"], each["column"]) for each in result.json["findings"]] == [
            ("m/shop/all.json", "unknown-field", 3, 36)
        ]
        assert result.json["documents"] == (3 if path != "m/shop/all.json" else 2)


def test_a_file_in_json_that_is_no_manifest_is_refused_by_its_name(tmp_path: Path) -> None:
    lay(tmp_path, JSON_FILES)
    result = validate(tmp_path, "m/package.json")
    assert (result.code, "m/package.json is no manifest: in JSON that is an object with `kind`" in result.err) == (
        2,
        True,
    )
    result = validate(tmp_path, "m/other")
    assert (result.code, "m/other has no manifest" in result.err) == (2, True)


def test_a_resource_in_yaml_and_json_is_declared_twice(tmp_path: Path) -> None:
    lay(tmp_path, {"m/gvc.yaml": GVC, "m/deep/gvc.json": json.dumps(yaml.safe_load(GVC))})
    twice = "error: gvc/shop is declared twice: here and at"
    assert f"m/gvc.yaml:1:1: {twice} m/deep/gvc.json:1 " in validate(tmp_path, "m").out
    lay(tmp_path, {"m/deep/web.json": json.dumps(yaml.safe_load(workload())), "m/deep/b.yaml": workload()})
    (tmp_path / "m" / ".git").mkdir()
    asked = validate(tmp_path, "m/deep/web.json").out
    assert "m/deep/web.json:1:1: error: workload/shop/api is declared twice: here and at m/deep/b.yaml:1 " in asked


def test_links_with_the_own_org_are_followed_where_the_org_is_known(tmp_path: Path) -> None:
    full = workload(more="tags: {reconciler/depends-on: /org/acme/gvc/shop/workload/gone}\n")
    lay(tmp_path / "m", {"shop/gvc.yaml": SHOP["shop/gvc.yaml"], "shop/api.yaml": full})
    assert validate(tmp_path, "m").code == 0, "links to another org are not followed"
    result = validate(tmp_path, "m", "--org", "acme")
    assert result.code == 1
    assert "workload/shop/gone, which does not exist" in result.out


def test_validate_takes_the_locations_from_the_settings(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    lay(tmp_path / "m", SHOP)
    assert sandbox.run("validate", "m").code == 0
    sandbox.settings.write_text(sandbox.settings.read_text().replace("  there: {engine: recorded}\n", ""))
    result = sandbox.run("validate", "m")
    assert result.code == 1
    assert "location/there, which does not exist" in result.out


def test_without_a_path_the_revision_of_every_source_is_checked(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    assert sandbox.run("validate", real=True) == (0, "no findings in 8 documents, 8 resources\n", "")
    sandbox.applied()
    assert sandbox.run("validate").out == "no findings in 8 documents, 8 resources\n", "what is applied is checked anew"
    sandbox.commit(
        {"shop/web.yaml": FAULTY["shop/web.yaml"]}, branch="feature", parent=sandbox.repo.git("rev-parse", "main")
    )
    result = sandbox.run("validate", "--revision", "feature", "--format", "json")
    assert result.code == 1
    assert [each["path"] for each in result.json["findings"]] == ["shop/web.yaml"]
    assert sandbox.run("validate").code == 0


def test_a_resource_of_two_sources_names_both_before_anything_is_applied(tmp_path: Path) -> None:
    both = SETTINGS.replace("locations:", "  - {name: extra, url: ./extra, branch: main}\nlocations:")
    sandbox = CommandSandbox(tmp_path, settings=both)
    GitRepo.create(tmp_path / "extra", {"gvc.yaml": GVC})
    twice = "gvc/shop is declared twice: here and at shop/gvc.yaml:1 of source main"
    expected = f"gvc.yaml:1:1: error: {twice} [duplicate-resource]"
    for _ in range(2):
        result = sandbox.run("validate")
        assert result.code == 1
        assert result.out.splitlines()[::3] == [expected, "    keep one of the two"]
        assert "\n1 error in 9 documents, 8 resources\n" in result.out
        assert sandbox.run("apply").code == 1


def test_the_shipped_example_is_sound(tmp_path: Path) -> None:
    result = validate(tmp_path, str(find_shipped_path("examples/repo")))
    assert result.code == 0, result.out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nowhere"], "nowhere"),
        (["empty"], "has no manifest"),
        (["empty", "--revision", "main"], "leave PATH out"),
        (["--org", "acme"], "--org is for a PATH"),
        (["empty", "--settings", "nowhere.yaml"], "nowhere.yaml"),
        ([], "cannot read the settings"),
    ],
)
def test_wrong_use_exits_with_2(tmp_path: Path, words: list[str], complaint: str) -> None:
    (tmp_path / "empty").mkdir()
    result = validate(tmp_path, *words)
    assert (result.code, result.out) == (2, "")
    assert complaint in result.err
