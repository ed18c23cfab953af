"""Commands that need no settings where a repository has a `.reconciler.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_sandbox import SETTINGS, CommandResult, CommandSandbox, here
from tests.support.git import GitRepo, git

GVC = "kind: gvc\nname: {}\nspec: {{staticPlacement: {{locationLinks: [//location/here]}}}}\n"
GVCS = "---\n".join(map(GVC.format, ("shop", "ops")))
FILES = {
    "gvcs.yaml": GVCS,
    "web.yaml": "kind: identity\nname: web\n",
    "group.yaml": "kind: group\nname: all\nmemberLinks: [/org/acme/user/ann@example.com, //serviceaccount/ci]\n",
    ".reconciler.yaml": 'org: acme\ngvc: ops\nexternal: ["//user/ann@example.com", "//serviceaccount/ci"]\n',
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work tree with one commit."""
    for name, text in FILES.items():
        (tmp_path / "work" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "work" / name).write_text(text)
    repo = GitRepo.create(tmp_path / "work", bare=False)
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "-m", "Begin")
    return repo.path


def run(work: Path, *words: str) -> CommandResult:
    return here(*words, cwd=work, RECONCILER_SETTINGS=str(work / "none.yaml"))


def test_validate_takes_org_gvc_and_external_resources_from_the_repository(work: Path) -> None:
    for path in (".", "web.yaml", "group.yaml", ".reconciler.yaml"):
        assert (run(work, "validate", path).code, path) == (0, path)
    (work / ".reconciler.yaml").unlink()
    shown = run(work, "validate", ".").out
    assert "[gvc-ambiguous]" in shown
    assert "[missing-reference]" in shown


def test_options_count_before_the_file(work: Path) -> None:
    result = run(work, "validate", ".", "--org", "beta", "--gvc", "shop")
    assert ".reconciler.yaml:1:6: notice: the org is beta, as the settings say; this does not count" in result.out
    assert ".reconciler.yaml:2:6: notice: the GVC is shop, as the settings say; this does not count" in result.out


def test_a_fault_of_the_file_is_shown_with_its_line(work: Path) -> None:
    (work / ".reconciler.yaml").write_text("org: acme\ngcv: ops\n")
    for result in (run(work, "validate", "."), run(work, "validate", ".reconciler.yaml"), run(work, "diff")):
        assert result.code == 1
        assert ".reconciler.yaml:2:1: error: unknown field `gcv` [unknown-field]" in result.out
        assert "did you mean `gvc`?" in result.out


def test_diff_reads_it_of_each_commit_and_of_the_work_tree(work: Path) -> None:
    (work / "web.yaml").write_text("kind: identity\nname: site\n")
    assert "+ identity/ops/site" in run(work, "diff").out
    assert "+ identity/shop/site" in run(work, "diff", "--gvc", "shop").out
    git(work, "commit", "--quiet", "--all", "-m", "Rename it")
    assert "- identity/ops/web" in run(work, "diff", "HEAD~1", "HEAD").out
    file = work / ".reconciler.yaml"
    file.write_text(file.read_text().replace("gvc: ops", "gvc: shop"))
    assert "+ identity/shop/site" in run(work, "diff").out, "it is planned without a commit, too"


def test_a_plan_of_a_directory_reads_it_and_the_settings_count(tmp_path: Path, work: Path) -> None:
    sandbox = CommandSandbox(tmp_path / "sandbox", settings=SETTINGS.replace("./manifests", str(work)))
    assert "+ identity/ops/web" in sandbox.run("plan", "--dir", str(work)).out
    assert sandbox.run("apply").code == 0
    (work / ".reconciler.yaml").write_text((work / ".reconciler.yaml").read_text().replace("gvc: ops", "gvc: shop"))
    assert "+ identity/shop/web" in sandbox.run("plan", "--dir", str(work)).out
    assert ".reconciler.yaml" in sandbox.run("plan").err, "that it is not committed is said"


def test_the_file_at_the_root_counts_for_a_folder_without_one(work: Path) -> None:
    (work / "prod").mkdir()
    for name in ("gvcs.yaml", "web.yaml"):
        (work / name).rename(work / "prod" / name)
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "-m", "Move them")
    (work / "prod" / "web.yaml").write_text("kind: identity\nname: site\n")
    assert "+ identity/ops/site" in run(work, "diff", "--path", "prod").out
    assert run(work, "validate", "prod").code == 0
