"""Changes inside lists are named by entry and shown whole: who may read a secret has to be plain to review."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.model.key import Key, Kind
from reconciler.planning.diff import diff_bodies
from reconciler.planning.plan import Action, ChangeClass, FieldChange, Plan, Step
from reconciler.render.plan.json import build_plan_document
from reconciler.render.plan.markdown import MAX_FIELDS, render_markdown
from reconciler.render.plan.summary import MAX_LINE, diff_lines
from reconciler.render.plan.text import MAX_CHANGES, MAX_PARTS, render_plan_text
from tests.support.cases import cases
from tests.support.pipeline import BASE, PipelineHarness

SECRET = "kind: secret\nname: db\ntype: dictionary\ndata: {a: b}\n"
IDENTITIES = "\n---\n".join(
    f"kind: identity\nname: {name}" for name in ("api", "db", "a-very-long-name-of-an-identity-that-fills-the-line")
)
FIELD = " " * 6


def plan_of(*changes: FieldChange) -> Plan:
    step = Step(Action.UPDATE, Key.parse("policy/p"), "", "recorded", 1, "d", b"{}", changes=changes)
    return Plan("main", "main@sha1:1", (step,), "d")


def between(before: list[Any], after: list[Any]) -> dict[str, tuple[Any, Any]]:
    """The changes between two lists of bindings."""
    bodies = [json.dumps({"kind": "policy", "name": "p", "bindings": each}).encode() for each in (before, after)]
    return {each.path: (each.before, each.after) for each in diff_bodies(Kind.POLICY, bodies[0], bodies[1], "")}


@pytest.mark.parametrize("case", cases("planning/lists.yaml"))
def test_a_change_inside_a_list_is_named_by_entry(case: dict[str, Any], tmp_path: Path) -> None:
    around: dict[str | bytes, Any] = {"shop/gvc.yaml": BASE, "shop/i.yaml": IDENTITIES, "s.yaml": SECRET}
    harness = PipelineHarness(tmp_path, {**around, "shop/it.yaml": case["before"]})
    harness.applied()
    harness.commit({"shop/it.yaml": case["after"]})
    plan = harness.plan()
    lines = render_plan_text(plan).splitlines()
    assert [line.removeprefix(FIELD) for line in lines if line.startswith(FIELD)] == case["text"]
    assert [change["path"] for change in build_plan_document(plan)["steps"][0]["changes"]] == case["paths"]
    shown = render_markdown(plan)
    for line in case["text"]:
        if re.match("  [-+]", line):
            assert f"`{line.strip()}`" in re.split(r"<br>| \| ", shown.replace("\n", " | ")), line


def test_entries_are_paired_with_those_most_like_them() -> None:
    db, api, both = {"a": ["db"], "p": 1}, {"a": ["api"], "p": 2}, {"a": ["api", "web"], "p": 2}
    assert between([db, api], [both]) == {"bindings[0]": (db, None), "bindings[0].a": (["api"], ["api", "web"])}
    assert between([api], [db, both]) == {"bindings[0]": (None, db), "bindings[1].a": (["api"], ["api", "web"])}
    assert between([db], [both]) == {"bindings[0]": (db, both)}, "what has nothing in common is another entry"
    assert between([db, db], [db]) == {"bindings[1]": (db, None)}


def test_ports_and_routes_of_domains_are_named_by_number_and_prefix() -> None:
    def body(*routes: dict[str, str]) -> bytes:
        ports = [{"number": 80, "protocol": "http"}, {"number": 443, "protocol": "http2", "routes": routes}]
        return json.dumps({"kind": "domain", "name": "example.com", "spec": {"ports": ports}}).encode()

    web, api = {"prefix": "/", "workloadLink": "web"}, {"prefix": "/api", "workloadLink": "api"}
    changes = diff_bodies(Kind.DOMAIN, body(web, api), body(web, {**api, "workloadLink": "new"}), "")
    assert [change.path for change in changes] == ["spec.ports[443].routes[/api].workloadLink"]
    changes = diff_bodies(Kind.DOMAIN, body(web), body(api, web), "")
    assert [change.path for change in changes] == ["spec.ports[443].routes[/api]"]
    twice = body(api, {**api, "workloadLink": "new"})
    assert [change.path for change in diff_bodies(Kind.DOMAIN, body(api), twice, "")] == ["spec.ports[443].routes[1]"]


def test_secrets_in_lists_are_not_shown() -> None:
    before, after = ({"kind": "secret", "name": "s", "data": {"l": [{"v": f"***{n}"}, f"***{n}"]}} for n in "12")
    changes = diff_bodies(Kind.SECRET, json.dumps(before).encode(), json.dumps(after).encode(), "")
    for shown in (
        render_plan_text(plan_of(*changes)),
        render_markdown(plan_of(*changes)),
        json.dumps(build_plan_document(plan_of(*changes))),
    ):
        assert "***" in shown
        assert not re.search(r"\*\*\*[0-9a-f]", shown)


def test_long_lists_cost_in_proportion_and_are_cut_at_the_end() -> None:
    count = 15_000
    before, after = ([{"a": [f"{kind}{n}"]} for n in range(count)] for kind in "xy")
    found = between(before, after)
    assert len(found) == count
    plan = plan_of(*(FieldChange(path, *pair, ChangeClass.IN_PLACE) for path, pair in found.items()))
    assert render_plan_text(plan).splitlines()[-3] == f"      … and {count - MAX_CHANGES} more fields"
    assert f"… and {count - MAX_FIELDS} more fields." in render_markdown(plan)
    plain = FieldChange("x", ["k"] + before[0]["a"] * count, ["k"], ChangeClass.IN_PLACE)
    assert render_plan_text(plan_of(plain)).splitlines()[-3] == f"        … and {count - MAX_PARTS} more lines"
    assert len(render_markdown(plan_of(plain))) < 2_000


def test_a_very_long_value_is_cut_where_both_are_alike_and_at_its_end() -> None:
    alike, rest = "a" * 5_000, "z" * 5_000
    (_, old), (_, new) = diff_lines(f"{alike}OLD{rest}", f"{alike}NEW{rest}")
    assert old.startswith("… 4960 characters alike … aaa")
    assert ("OLD" in old, "NEW" in new) == (True, True)
    assert old.endswith(" more characters")
    assert len(old) < MAX_LINE + 50


def test_of_a_text_in_a_list_only_the_lines_that_differ_are_shown() -> None:
    script = [f"echo step {number}" for number in range(40)]
    edited = [*script[:20], "echo changed", *script[21:]]
    before, after = ["-c", "\n".join(script), "x"], ["-c", "\n".join(edited), "x"]
    lines = [(" ", "echo step 19"), ("-", "echo step 20"), ("+", "echo changed"), (" ", "echo step 21")]
    assert diff_lines(before, after) == lines
    assert diff_lines(before, [*after, "--new"]) == [*lines, ("+", "--new")]
    assert diff_lines(["-c", "\n".join(script)], [*before, "\n".join(edited)])[0] == ("+", "x"), "a new text is shown"
    plan = plan_of(FieldChange("spec.containers[main].args", before, after, ChangeClass.NEW_VERSION))
    shown = render_plan_text(plan)
    assert "        - echo step 20\n        + echo changed\n" in shown
    assert "echo step 30" not in shown
    assert "echo step 30" not in render_markdown(plan)


def test_one_line_of_a_very_long_text_is_found() -> None:
    text = [f"line {number}" for number in range(20_000)]
    changed = [*text[:9_000], "another", *text[9_001:]]
    expected = [(" ", "line 8999"), ("-", "line 9000"), ("+", "another"), (" ", "line 9001")]
    assert diff_lines("\n".join(text), "\n".join(changed)) == expected


def test_a_character_of_a_very_long_entry_is_found() -> None:
    before, after = (["-e", f"{'a' * 5_000}{word}"] for word in ("OLD", "NEW"))
    (_, old), (_, new) = diff_lines(before, after)
    assert (old[-3:], new[-3:]) == ("OLD", "NEW")
