"""The view of the desired state: an index, bodies and positions; a change set makes a new one."""

from __future__ import annotations

import ast
from pathlib import Path

from reconciler.model.key import Kind
from reconciler.pipeline.desired_index import RecordsIndex
from reconciler.pipeline.externals import ExternalResources
from tests.project.tree import PACKAGE, modules
from tests.support.pipeline import BASE, PipelineHarness

WEB = """kind: workload
name: web
gvc: shop
spec:
  type: standard
  identityLink: //identity/web
  containers: [{name: main, image: nginx, ports: [{number: 80, protocol: http}]}]
"""
IDENTITY = "kind: identity\nname: web\ngvc: shop\n"
FILES = {"shop/gvc.yaml": BASE, "shop/web.yaml": WEB, "shop/identity.yaml": IDENTITY}
DECODING = ("reconciler.decode", "reconciler.manifests.decoder", "reconciler.secrets", "reconciler.source")


def test_a_change_set_makes_a_new_view_and_leaves_the_other_as_it_was(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, FILES)
    harness.applied()
    before = harness.pipeline.view()
    harness.commit({"shop/web.yaml": WEB.replace("nginx", "caddy"), "shop/identity.yaml": None})
    after = before.with_changes(harness.prepare().loaded.change_set)
    for view, image, exists in ((before, b"nginx", True), (after, b"caddy", False)):
        body = view.bodies.related_body("workload/shop/web")
        assert body is not None
        assert (image in body, view.index.exists("identity/shop/web")) == (True, exists)
    assert before.positions is after.positions


def test_the_index_answers_from_records_and_a_change_set_alone(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, FILES)
    harness.applied()
    harness.commit({"shop/web.yaml": f"# moved down\n{WEB}", "shop/gvc.yaml": None})
    index = RecordsIndex("main", harness.records, ExternalResources(), harness.prepare().loaded.change_set)
    assert index.users("identity/shop/web", Kind.WORKLOAD) == ["workload/shop/web"]
    assert [reference.target for reference in index.references("workload/shop/web")][-1] == "identity/shop/web"
    assert index.site("identity/shop/web").path == "shop/identity.yaml"
    assert index.members("shop") == {"workload/shop/web", "identity/shop/web"}
    assert (index.removed, index.entry("gvc/shop")) == ({"gvc/shop"}, None)


def test_only_the_bodies_decode() -> None:
    path = str((PACKAGE / "pipeline" / "desired_index.py").relative_to(PACKAGE.parent))
    imported = {node.module or "" for node in ast.walk(modules()[path]) if isinstance(node, ast.ImportFrom)}
    assert [name for name in imported if name.startswith(DECODING)] == []


def test_rules_see_the_index_and_the_bodies() -> None:
    for path, module in modules().items():
        if path.startswith("reconciler/manifests/rules/"):
            named = {node.attr for node in ast.walk(module) if isinstance(node, ast.Attribute)}
            assert not named & {"positions", "silenced_by"}, path
