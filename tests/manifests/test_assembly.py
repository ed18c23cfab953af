"""Revision after revision: which resources there are, and what does not fit together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.manifests.rules import load_rules
from tests.support.cases import cases
from tests.support.git import File
from tests.support.pipeline import BASE, PipelineHarness, shown

WORKLOAD = "kind: workload\nname: {name}\nspec: {{type: standard, containers: [{{name: main, image: nginx:1}}]}}\n"


def text_of(content: Any) -> File:
    """What a case gives for a file: text as it is, and documents as JSON, one a line (JSON is YAML)."""
    if content is None or isinstance(content, str):
        return content
    documents = content if isinstance(content, list) else [content]
    return "\n---\n".join(json.dumps(document) for document in documents)


def desired(harness: PipelineHarness) -> dict[str, str]:
    """Every desired key and the file that asks for it."""
    keys = [key for key, _ in harness.records.desired.scan()]
    return {key: harness.records.desired.get(key).path for key in keys}  # type: ignore[union-attr]


@pytest.mark.parametrize("case", cases("manifests/assembly.yaml"))
def test_revisions_are_assembled_as_their_case_expects(case: dict[str, Any], tmp_path: Path) -> None:
    revisions = [{path: text_of(one) for path, one in revision["files"].items()} for revision in case["revisions"]]
    external, gvc = tuple(case.get("external", ())), case.get("gvc", "")
    harness = PipelineHarness(tmp_path, revisions[0], external=external, gvc=gvc)
    before: dict[str, str] = {}
    for number, revision in enumerate(case["revisions"]):
        if number:
            harness.commit(revisions[number])
        prepared = harness.prepare()
        found = [finding for finding in prepared.findings if finding.rule not in load_rules()]
        assert shown(found) == revision.get("findings", [])
        if prepared.plan is not None:
            harness.accept(prepared)
            before = revision["desired"]
        assert desired(harness) == before


def test_another_gvc_in_the_settings_moves_what_no_directory_decides(tmp_path: Path) -> None:
    gvcs = "".join(f"{BASE.replace('name: shop', f'name: {name}')}---\n" for name in ("shop", "ops"))
    files = {"gvcs.yaml": gvcs, "web.yaml": WORKLOAD.format(name="web")}
    harness = PipelineHarness(tmp_path, files, gvc="shop")
    harness.applied()
    assert "workload/shop/web" in desired(harness)
    harness.set_gvc("ops")
    harness.accept(harness.prepare())
    assert {*desired(harness)} == {"gvc/ops", "gvc/shop", "workload/ops/web"}
    harness.set_gvc("")
    assert [finding.rule for finding in harness.prepare().findings] == ["gvc-ambiguous"]


def test_a_resource_in_two_sources_is_reported_with_both_places(tmp_path: Path) -> None:
    first = PipelineHarness(tmp_path / "one", {"shop/gvc.yaml": BASE, "shop/web.yaml": WORKLOAD.format(name="web")})
    first.applied()
    second = PipelineHarness(
        tmp_path / "two",
        {"z.yaml": "kind: identity\nname: a\ngvc: shop\n---\n" + WORKLOAD.format(name="web") + "gvc: shop\n"},
        records=first.records,
        name="second",
    )
    assert shown(second.prepare().findings) == [
        "z.yaml:5:1 duplicate-resource | workload/shop/web is declared twice: here and at shop/web.yaml:1"
        " of source main | keep one of the two"
    ]


def test_a_resource_of_one_source_may_refer_to_that_of_another(tmp_path: Path) -> None:
    first = PipelineHarness(tmp_path / "one", {"shop/gvc.yaml": BASE})
    first.applied()
    files = {"z.yaml": "kind: identity\nname: a\ngvc: shop\n"}
    second = PipelineHarness(tmp_path / "two", files, records=first.records, name="second")
    second.applied()
    assert {"gvc/shop", "identity/shop/a"} <= second.recorded().keys()


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_broken_links_are_all_reported(count: int, tmp_path: Path) -> None:
    secret = "kind: secret\nname: db\ntype: dictionary\ndata: {}\n"
    names = [f"web-{number:04d}" for number in range(count)]
    uses = "{{name: main, image: nginx:1, env: [{{name: A, value: platform://secret/db}}]}}"
    spec = f"{{{{type: standard, identityLink: //identity/web, containers: [{uses}]}}}}"
    workload = f"kind: workload\nname: {{name}}\nspec: {spec}\n"
    documents = "---\n".join(workload.format(name=name) for name in names)
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE, "shop/all.yaml": documents, "secret.yaml": secret})
    harness.accept(harness.prepare())
    harness.commit({"secret.yaml": None})
    found = harness.prepare().findings
    assert [finding.key for finding in found] == [f"workload/shop/{name}" for name in names]


def test_a_thousand_broken_links_of_one_file_are_reported(tmp_path: Path) -> None:
    group = "kind: group\nname: g{}\nmemberLinks: [//serviceaccount/{}]\n"
    missing = "---\n".join(group.format(number, number) for number in range(1_500))
    harness = PipelineHarness(
        tmp_path, {"shop/gvc.yaml": BASE, "groups.yaml": missing, "one.yaml": group.format("x", "y")}
    )
    findings = harness.prepare().findings
    *reported, last = (finding for finding in findings if finding.path == "groups.yaml")
    assert len(reported) == 1_000
    assert (last.rule, last.line, "more than 1,000 errors" in last.message) == ("too-many-faults", 4_003, True)
    assert [finding.path for finding in findings if finding.path == "one.yaml"] == ["one.yaml"]


def test_some_circles_are_reported_and_long_ones_shortened(tmp_path: Path) -> None:
    group = "kind: group\nname: g{:02}\ntags: {{reconciler/depends-on: //group/g{:02}}}\n"
    long = "---\n".join(group.format(number, (number + 1) % 30) for number in range(30))
    loops = "---\n".join(group.format(number, number) for number in range(99, 69, -1))
    found = PipelineHarness(tmp_path, {"long.yaml": long, "loops.yaml": loops}).prepare().findings
    assert {finding.rule for finding in found} == {"dependency-cycle"}
    first, *rest = (finding.message for finding in found)
    assert first.partition(": ")[2].count(" → ") == 12
    assert "… 19 more …" in first
    assert len(rest) == 20
    assert sum("more than 20 cycles" in text for text in rest) == 1
