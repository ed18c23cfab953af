"""A plan as text, as Markdown and as JSON: compared with files, and free of secrets."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import msgspec
import pytest

from reconciler.model.key import Key
from reconciler.planning.plan import Action, ChangeClass, FieldChange, Plan, Step
from reconciler.render.plan.json import build_plan_document
from reconciler.render.plan.markdown import render_markdown
from reconciler.render.plan.summary import one_line
from reconciler.render.plan.text import render_plan_text
from tests.planning.test_deletes import VOLUMES, identity, stateful, workload
from tests.support.cases import CASES
from tests.support.pipeline import BASE, PipelineHarness

FORMS = {
    "txt": render_plan_text,
    "md": render_markdown,
    "json": lambda plan: json.dumps(build_plan_document(plan), indent=2) + "\n",
}
SECRET = "kind: secret\nname: {name}\ntype: dictionary\ndata: {{user: {value}-user, password: {value}-password}}\n"


def org(*documents: str) -> str:
    """Documents as one file."""
    return "---\n".join(documents)


@pytest.fixture
def mixed(tmp_path: Path) -> Plan:
    """A plan with some of everything in it."""
    harness = PipelineHarness(
        tmp_path,
        {
            "_org/secrets.yaml": org(SECRET.format(name="db", value="hush"), SECRET.format(name="old", value="quiet")),
            "shop/gvc.yaml": BASE,
            "shop/all.yaml": org(
                VOLUMES.format(name="data"),
                stateful("db", "data"),
                workload("web"),
                workload("kept", "{platform/protected: true}"),
                workload("was", "{a: b}"),
                identity("i"),
            ),
        },
    )
    harness.applied()
    harness.commit(
        {
            "_org/secrets.yaml": org(SECRET.format(name="db", value="shush"), SECRET.format(name="new", value="psst")),
            "shop/all.yaml": org(
                workload("web", "{reconciler/allow-replace: true, odd|tag: '`x` <b>@all</b>'}").replace(
                    "standard", "stateful"
                ),
                workload("is", "{a: b}"),
                identity("i", "{team: front}"),
                workload("fresh").replace("spec:", "description: New here\nspec:"),
            ),
        }
    )
    return harness.plan()


@pytest.mark.parametrize("form", FORMS)
def test_a_plan_is_shown_as_it_always_was(form: str, mixed: Plan) -> None:
    file = CASES / "planning" / f"mixed.{form}"
    shown = FORMS[form](mixed)
    if os.environ.get("REWRITE_CASES"):
        file.write_text(shown)
    assert masked(shown) == masked(file.read_text())


def masked(shown: str) -> str:
    """Without the digests, which cover keyed digests of secrets and so are new every time."""
    return re.sub(r"(approve |digest `?)[0-9a-f]{12}\b", r"\1DIGEST", shown)


@pytest.mark.parametrize("form", FORMS)
def test_no_secret_is_shown_in_any_form(form: str, mixed: Plan) -> None:
    shown = FORMS[form](mixed)
    assert "***" in shown or form == "txt"
    assert not re.search(r"\*\*\*[0-9a-f]", shown)
    assert not re.findall("hush|quiet|psst", shown)


def test_colours_are_all_that_a_terminal_adds(mixed: Plan) -> None:
    coloured = render_plan_text(mixed, colour=True)
    assert "\x1b[32m+\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == render_plan_text(mixed)


def test_the_document_has_what_scripts_rely_on(mixed: Plan) -> None:
    shown = build_plan_document(mixed)
    assert {"revision", "digest", "steps", "summary"} <= shown.keys()
    for step in shown["steps"]:
        assert {"action", "key", "location", "changes", "waits_for"} <= step.keys()
        for change in step["changes"]:
            assert change.keys() == {"path", "before", "after", "class"}
    assert shown["summary"] == {
        "create": 3,
        "update": 2,
        "replace": 1,
        "delete": 4,
        "waiting": 5,
        "suspended": 0,
        "blocked": 0,
        "retained": 1,
    }


def test_an_empty_plan_is_shown_as_nothing_to_do(tmp_path: Path) -> None:
    harness = PipelineHarness(tmp_path, {"shop/gvc.yaml": BASE})
    harness.applied()
    plan = harness.plan()
    assert render_plan_text(plan).endswith("\nPlan: nothing to do.\n")
    assert render_markdown(plan).startswith("### Plan: nothing to do\n")
    assert build_plan_document(plan)["steps"] == []


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (None, "(none)"),
        ("", '""'),
        ("two\nlines", '"two\\nlines"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        (True, "true"),
        ([1, {"a": None}], '[1,{"a":null}]'),
        ("a" * 80, "a" * 80),
    ],
)
def test_a_value_takes_one_line(value: object, line: str) -> None:
    assert one_line(value) == line


@pytest.mark.parametrize("value", ["`", "``", "a``b|c", "`` @all ``", "<b>", "|"])
def test_no_value_breaks_out_of_its_cell(value: str) -> None:
    change = FieldChange("description", "x", value, ChangeClass.IN_PLACE)
    step = Step(Action.UPDATE, Key.parse("secret/s"), "", "recorded", 1, "d", b"{}", changes=(change,))
    [row] = [line for line in render_markdown(Plan("main", "r", (step,), "d")).splitlines() if "`description`" in line]
    cell = re.split(r"(?<!\\)\|", row)[3].strip()
    fence = re.match("`+", cell)
    assert fence is not None
    assert cell.endswith(fence[0])
    inner = cell[len(fence[0]) : -len(fence[0])]
    assert inner.strip() == value.replace("|", r"\|").strip()
    assert len(fence[0]) not in map(len, re.findall("`+", inner))


def test_a_large_plan_is_cut_where_a_comment_would_be(tmp_path: Path) -> None:
    files = {"shop/gvc.yaml": BASE, "shop/all.yaml": org(*(identity(f"i{number}") for number in range(300)))}
    shown = render_markdown(PipelineHarness(tmp_path, files).plan())
    assert "… and 101 more." in shown
    assert shown.count("| create |") == 200


def test_a_plan_survives_msgpack(mixed: Plan) -> None:
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(mixed), type=Plan)
    assert render_plan_text(again) == render_plan_text(mixed)
