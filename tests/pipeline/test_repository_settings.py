"""What a repository says of itself in `.reconciler.yaml` counts where the settings say nothing, and grants nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import SourceError
from reconciler.pipeline.load import read_revision_settings
from reconciler.settings import SourceSettings
from reconciler.source.source import open_source
from tests.support.git import File, GitRepo, Symlink
from tests.support.pipeline import BASE, PipelineHarness, placed, shown

IDENTITY = "kind: identity\nname: web\n"
USER = """kind: workload
name: api
spec: {type: standard, identityLink: //identity/web, containers: [{name: main, image: nginx:1}]}
"""
FILES: dict[str | bytes, File] = {
    "shop.yaml": BASE,
    "ops.yaml": BASE.replace("shop", "ops"),
    "web.yaml": IDENTITY,
    ".reconciler.yaml": "org: acme\ngvc: ops\n",
}


def test_the_gvc_of_the_file_counts_and_a_change_of_it_reads_all(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, FILES)
    harness.applied()
    assert "identity/ops/web" in harness.recorded()
    harness.commit({".reconciler.yaml": "gvc: shop\n"})
    assert sorted(map(placed, harness.plan().steps)) == ["identity/ops/web", "identity/shop/web"]
    harness.commit({".reconciler.yaml": None})
    assert [finding.split(" ")[1] for finding in shown(harness.prepare().findings)] == ["gvc-ambiguous"]


def test_the_settings_count_before_the_file_with_a_notice(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, FILES | {".reconciler.yaml": "gvc: ops\norg: beta\n"}, gvc="shop")
    assert shown(harness.prepare().findings) == [
        ".reconciler.yaml:1:6 repository-setting-unused | the GVC is shop, as the settings say; this does not count",
        ".reconciler.yaml:2:6 repository-setting-unused | the org is acme, as the settings say; this does not count",
    ]
    harness.applied()
    assert "identity/shop/web" in harness.recorded()
    harness.commit({"web.yaml": IDENTITY + "description: new\n"})
    assert shown(harness.prepare().findings) == [], "a notice belongs to the file in which it is"


def test_a_fault_of_the_file_refuses_the_revision_at_its_line(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, FILES | {".reconciler.yaml": "gvc: ops\nsources: []\nstate: /etc\n"})
    prepared = harness.prepare()
    assert prepared.plan is None
    assert [finding.partition(" |")[0] for finding in shown(prepared.findings) if ".recon" in finding] == [
        ".reconciler.yaml:2:1 unknown-field",
        ".reconciler.yaml:3:1 unknown-field",
    ]


@pytest.mark.parametrize(
    "text",
    ["[" * 5000, "&a [*a]", "gvc: !!python/object {}", "gvc: ../../etc", "x" * 70_000, "gvc: \x00", "- a", "\ufeff\t"],
)
def test_hostile_content_is_a_finding_of_the_file(tmp_path: Path, text: str) -> None:
    harness = PipelineHarness(tmp_path, FILES | {".reconciler.yaml": text})
    prepared = harness.prepare()
    assert prepared.plan is None
    assert any(finding.path == ".reconciler.yaml" and finding.line for finding in prepared.findings)


def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, FILES | {".reconciler.yaml": Symlink("/etc/passwd")})
    with pytest.raises(SourceError, match=r"\.reconciler\.yaml must be a file of its own, not a link"):
        harness.prepare()


def test_an_external_link_satisfies_the_links_of_this_repository(tmp_path: Path) -> None:
    files: dict[str | bytes, File] = {"shop.yaml": BASE, "api.yaml": USER}
    harness = PipelineHarness(tmp_path, files)
    assert [finding.split(" ")[1] for finding in shown(harness.prepare().findings)] == ["missing-reference"]
    harness.commit({".reconciler.yaml": 'external: ["//gvc/shop/identity/web"]\n'})
    harness.applied()
    assert "workload/shop/api@here" in harness.recorded()


@pytest.mark.parametrize("link", ["/org/other/identity/web", "//policy", "https://a/b", "//gvc/shop/identity/web/x"])
def test_an_external_link_leads_to_a_resource_of_the_org_alone(tmp_path: Path, link: str) -> None:
    harness = PipelineHarness(tmp_path, FILES | {".reconciler.yaml": f"external: ['{link}']\n"})
    assert harness.prepare().plan is None


def test_an_external_link_does_not_let_a_source_remove_what_another_one_needs(tmp_path: Path) -> None:
    claim = 'external: ["//gvc/shop/identity/web"]\n'
    first = PipelineHarness(tmp_path, {"shop.yaml": BASE, "web.yaml": IDENTITY, ".reconciler.yaml": claim}, name="a")
    first.applied()
    second = PipelineHarness(
        tmp_path, {"api.yaml": USER.replace("name: api", "name: api\ngvc: shop")}, records=first.records, name="b"
    )
    second.applied()
    first.commit({"web.yaml": None})
    [refused] = [text for text in shown(first.prepare().findings) if "missing-reference" in text]
    assert "identity/shop/web cannot be removed: workload/shop/api of source b" in refused


def test_an_external_link_to_what_another_source_declares_leaves_the_order_as_it_is(tmp_path: Path) -> None:
    """Its target is known, so the workload waits for it as for any other."""
    claim = 'external: ["//gvc/shop/identity/web"]\n'
    harness = PipelineHarness(
        tmp_path, {"shop.yaml": BASE, "web.yaml": IDENTITY, "z.yaml": USER, ".reconciler.yaml": claim}
    )
    steps = [placed(step) for step in harness.plan().steps]
    assert steps.index("identity/shop/web") < steps.index("workload/shop/api@here")


def test_a_source_with_a_path_has_its_own_file_or_that_of_the_root(tmp_path: Path) -> None:
    repo = GitRepo.create(tmp_path / "r.git", {"prod/gvc.yaml": BASE, ".reconciler.yaml": "gvc: root\n"})
    settings = SourceSettings(name="main", url=str(repo.path), branch="main", path="prod")
    source = open_source(settings, tmp_path / "state")
    first = source.revision()
    assert read_revision_settings(source.repository, first).settings.gvc == "root"
    repo.commit({".reconciler.yaml": "gvc: changed\n"})
    second = source.revision()
    assert (first.tree, first.commit) != (second.tree, second.commit)
    assert source.repository.selection(first) != source.repository.selection(second), "all is read again"
    repo.commit({"prod/.reconciler.yaml": "gvc: own\n"})
    assert read_revision_settings(source.repository, source.revision()).settings.gvc == "own"
