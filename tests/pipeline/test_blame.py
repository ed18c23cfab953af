"""Every change of a plan names the commit that asked for it, and the line of that commit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import pytest
import yaml

from reconciler.planning.blame import format_blame, pointer_of
from reconciler.render.plan.json import build_plan_document
from reconciler.review import blame
from reconciler.review.blame import add_blames
from tests.pipeline.drift_harness import KEY, DriftHarness
from tests.support.git import GitRepo
from tests.support.pace import in_time
from tests.support.pipeline import BASE, PipelineHarness, placed

WEB = """kind: workload
name: web
description: The shop window
spec:
  type: standard
  containers:
    - name: side
      image: log:1
    - name: main
      image: nginx:1
      cpu: 50m
"""


def blamed(harness: PipelineHarness, wanted: bool | None = None) -> dict[str, str]:
    """``COMMIT LINE`` by ``STEP FIELD``, the commit by the first word of its subject."""
    blames = add_blames(harness.pipeline, harness.prepare(), wanted).blames or {}
    names = dict(line.split(" ", 1) for line in harness.repo.git("log", "--all", "--format=%H %s").splitlines())
    return {
        f"{step} {path}".rstrip(): f"{names.get(each.commit, 'older')} {each.path}:{each.line}"
        for (step, path), each in blames.items()
        if step.location in ("", "here")
    }


def test_a_change_of_a_manifest_in_json_has_its_line(tmp_path: Path) -> None:
    value = [{"kind": "identity", "name": "a"}, yaml.safe_load(WEB)]
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE, "shop/all.json": json.dumps(value, indent=2)})
    harness.applied()
    value[1]["spec"]["containers"][1]["cpu"] = "75m"
    harness.repo.commit({"shop/all.json": json.dumps(value, indent=2)}, message="busy since noon")
    line = 1 + json.dumps(value, indent=2).split("\n").index('          "cpu": "75m"')
    assert [*blamed(harness).values()] == [f"busy since noon shop/all.json:{line}"]


def start(path: Path, text: str = WEB) -> PipelineHarness:
    """The shop, applied."""
    harness = PipelineHarness(path, {"shop/gvc.yaml": BASE, "shop/web.yaml": text})
    harness.applied()
    return harness


def test_each_field_has_the_commit_and_the_line_that_ask_for_it(tmp_path: Path) -> None:
    harness = start(tmp_path)
    first = WEB.replace("nginx:1", "nginx:2")
    harness.commit({"shop/web.yaml": first}, message="image")
    second = "# The window\n" + first.replace("The shop window", "The window")
    harness.commit({"shop/web.yaml": second}, message="words")
    harness.commit({"shop/other.yaml": WEB.replace("name: web", "name: other")}, message="other")
    assert blamed(harness) == {
        "workload/shop/web@here description": "words shop/web.yaml:4",
        "workload/shop/web@here spec.containers[main].image": "image shop/web.yaml:10",
        "workload/shop/other@here": "other shop/other.yaml:1",
    }


def test_the_later_of_two_commits_is_blamed(tmp_path: Path) -> None:
    harness = start(tmp_path)
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")}, message="early")
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:3")}, message="late")
    assert blamed(harness) == {"workload/shop/web@here spec.containers[main].image": "late shop/web.yaml:10"}


def test_a_change_that_was_reverted_is_blamed_on_no_commit(tmp_path: Path) -> None:
    harness = start(tmp_path)
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")}, message="there")
    harness.commit({"shop/web.yaml": WEB}, message="back")
    harness.commit({"shop/web.yaml": WEB.replace("cpu: 50m", "cpu: 70m")}, message="cpu")
    assert blamed(harness) == {"workload/shop/web@here spec.containers[main].cpu": "cpu shop/web.yaml:11"}


def test_a_removed_field_is_blamed_where_it_would_be(tmp_path: Path) -> None:
    harness = start(tmp_path, WEB + "tags: {team: front}\n")
    harness.commit({"shop/web.yaml": WEB + "tags: {}\n"}, message="untagged")
    assert blamed(harness) == {"workload/shop/web@here tags.team": "untagged shop/web.yaml:12"}


def test_a_delete_has_the_commit_that_took_the_manifest_away(tmp_path: Path) -> None:
    harness = start(tmp_path)
    other = WEB.replace("name: web", "name: other")
    harness.commit({"shop/web.yaml": f"{WEB}---\n{other}"}, message="two")
    harness.applied()
    harness.commit({"shop/web.yaml": other.replace("nginx:1", "nginx:2")}, message="gone")
    harness.commit({"shop/web.yaml": other.replace("nginx:1", "nginx:3")}, message="later")
    found = blamed(harness)
    assert found["workload/shop/web@here"] == "gone shop/web.yaml:0"
    assert found["workload/shop/other@here spec.containers[main].image"] == "later shop/web.yaml:10"


def test_a_resource_that_moved_and_changed_is_asked_for_where_it_is_now(tmp_path: Path) -> None:
    harness = start(tmp_path)
    harness.commit({"shop/web.yaml": None, "shop/b/web.yaml": WEB}, message="moved")
    harness.commit({"shop/b/web.yaml": WEB.replace("nginx:1", "nginx:2")}, message="changed")
    assert blamed(harness)["workload/shop/web@here spec.containers[main].image"] == "changed shop/b/web.yaml:10"


def test_a_merged_change_is_blamed_on_the_merged_commit(tmp_path: Path) -> None:
    harness = start(tmp_path)
    base = harness.repo.git("rev-parse", "main")
    side = harness.repo.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")}, "side", branch="side", parent=base)
    harness.commit({"shop/gvc.yaml": BASE + "description: More\n"}, message="trunk")
    trunk = harness.repo.git("rev-parse", "main")
    tree = harness.repo.git("merge-tree", "--write-tree", trunk, side)
    merge = harness.repo.git(
        "-c", "user.name=A", "-c", "user.email=a@b", "commit-tree", tree, "-p", trunk, "-p", side, "-m", "merge"
    )
    harness.repo.git("update-ref", "refs/heads/main", merge)
    found = blamed(harness)
    assert found["workload/shop/web@here spec.containers[main].image"] == "side shop/web.yaml:10"
    assert found["gvc/shop description"] == "trunk shop/gvc.yaml:4"


def test_an_unreadable_version_hides_no_commit(tmp_path: Path) -> None:
    harness = start(tmp_path)
    harness.commit({"shop/web.yaml": WEB.replace("cpu: 50m", "cpu: 70m")}, message="cpu")
    harness.commit({"shop/web.yaml": "kind: [\n"}, message="broken")
    harness.commit(
        {"shop/web.yaml": WEB.replace("cpu: 50m", "cpu: 70m").replace("nginx:1", "nginx:2")}, message="mended"
    )
    assert set(blamed(harness).values()) == {"mended shop/web.yaml:10", "mended shop/web.yaml:11"}


def test_a_source_below_a_directory_is_blamed_by_paths_as_findings_name_them(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"prod/shop/gvc.yaml": BASE, "prod/shop/web.yaml": WEB, "web.yaml": WEB})
    harness.commit({"prod/shop/web.yaml": WEB.replace("nginx:1", "nginx:2")}, message="image")
    [source] = harness.settings.sources
    below = msgspec.structs.replace(source, path="prod")
    harness.settings = msgspec.structs.replace(harness.settings, sources=(below,))
    harness.pipeline = harness.new_pipeline()
    harness.applied()
    harness.commit({"prod/shop/web.yaml": WEB.replace("nginx:1", "nginx:3")}, message="again")
    assert blamed(harness) == {"workload/shop/web@here spec.containers[main].image": "again shop/web.yaml:10"}


def test_effects_of_a_gvc_on_its_members_are_not_blamed(tmp_path: Path) -> None:
    harness = start(tmp_path)
    harness.commit({"shop/gvc.yaml": BASE.replace(", //location/there", "")}, message="one place")
    plan = harness.plan()
    assert {placed(step) for step in plan.steps} == {"gvc/shop", "workload/shop/web@there"}
    assert list(blamed(harness)) == ["gvc/shop spec.staticPlacement.locationLinks"]


def test_drift_is_nobodys_wish(tmp_path: Path) -> None:
    harness = DriftHarness(tmp_path)
    harness.applied()
    harness.another_image()
    harness.check()
    assert placed(harness.plan().steps[0]) == f"{KEY}@here"
    assert blamed(harness, True) == {}


def test_history_without_the_recorded_commit_is_searched_too(tmp_path: Path) -> None:
    harness = start(tmp_path)
    harness.repo.commit({"shop/gvc.yaml": BASE, "shop/web.yaml": WEB}, "root", parent="")
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")}, message="image")
    [source] = harness.settings.sources
    rewritten = msgspec.structs.replace(source, allow_rewrite=True)
    harness.settings = msgspec.structs.replace(harness.settings, sources=(rewritten,))
    harness.repo.git("reflog", "expire", "--all", "--expire=now")
    harness.repo.git("gc", "--quiet", "--prune=now")
    harness.pipeline = harness.new_pipeline()
    assert blamed(harness) == {"workload/shop/web@here spec.containers[main].image": "image shop/web.yaml:10"}


def test_a_search_is_limited_and_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = start(tmp_path)
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")}, message="image")
    for number in range(5):
        harness.commit({"shop/gvc.yaml": BASE + f"description: Number {number}\n"}, message="gvc")
    monkeypatch.setattr(blame, "MAX_COMMITS", 3)
    found = blamed(harness)
    assert found["workload/shop/web@here spec.containers[main].image"] == "older shop/web.yaml:0"
    [text] = {
        format_blame(each)
        for each in (add_blames(harness.pipeline, harness.prepare(), True).blames or {}).values()
        if not each.commit
    }
    assert text == "older, shop/web.yaml"


def test_many_changes_are_blamed_only_on_request(tmp_path: Path) -> None:
    files = {f"shop/w{number}.yaml": WEB.replace("name: web", f"name: w{number}") for number in range(51)}
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE, **files})
    assert blamed(harness) == {}
    assert len(blamed(harness, True)) == 52
    harness.applied()
    harness.commit({"shop/w1.yaml": files["shop/w1.yaml"].replace("nginx:1", "nginx:2")})
    assert len(blamed(harness)) == 1
    assert blamed(harness, False) == {}


def test_no_secret_is_in_the_blame(tmp_path: Path) -> None:
    secret = "kind: secret\nname: db\ntype: dictionary\ndata:\n  user: shop\n  password: {}\n"
    harness = PipelineHarness(tmp_path, {"db.yaml": secret.format("first-canary")})
    harness.applied()
    harness.commit({"db.yaml": secret.format("second-canary")}, message="secret")
    prepared = add_blames(harness.pipeline, harness.prepare(), None)
    assert blamed(harness) == {"secret/db data.password": "secret db.yaml:6"}
    assert prepared.plan is not None
    assert "canary" not in str(build_plan_document(prepared.plan, prepared.blames))


def test_a_long_history_is_walked_in_time(tmp_path: Path) -> None:
    harness = start(tmp_path)
    harness.commit({"shop/web.yaml": WEB.replace("nginx:1", "nginx:2")}, message="image")
    _grow(harness.repo, 2000)
    prepared = harness.prepare()
    found, _ = in_time(lambda: add_blames(harness.pipeline, prepared, None).blames or {}, 1.5)
    assert all(each.commit for each in found.values())


def _grow(repo: GitRepo, commits: int) -> None:
    """Commits that change another file, made by one import."""
    lines = ["reset refs/heads/main", f"from {repo.git('rev-parse', 'main')}", ""]
    for number in range(commits):
        content = f"# {number}\n"
        lines += ["commit refs/heads/main", f"committer A <a@b> {1_800_000_000 + number} +0000", "data 1", "x"]
        lines += ["M 100644 inline notes.txt", f"data {len(content)}", content]
    (repo.path / "stream").write_text("\n".join(lines))
    with (repo.path / "stream").open() as stream:
        subprocess.run(["git", "fast-import", "--quiet"], cwd=repo.path, stdin=stream, check=True)


@pytest.mark.parametrize(
    ("path", "pointer"),
    [
        ("spec.containers[main].image", ("spec", "containers", 1, "image")),
        ("spec.containers[gone].image", ("spec", "containers")),
        ("spec.containers[order]", ("spec", "containers")),
        ('tags["a.b/c"]', ("tags", "a.b/c")),
        ("spec.links[here]", ("spec", "links", 0)),
        ("spec.nothing.at.all", ("spec",)),
        ("description", ()),
    ],
)
def test_a_field_of_a_plan_is_found_in_the_file(path: str, pointer: tuple[str | int, ...]) -> None:
    value = {
        "tags": {"a.b/c": "x"},
        "spec": {"containers": [{"name": "side"}, {"name": "main", "image": "x"}], "links": ["//location/here"]},
    }
    assert pointer_of(path, value) == pointer
