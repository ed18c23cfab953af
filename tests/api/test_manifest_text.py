"""Changes in the text of a file: what is not changed stays as it is written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from reconciler.documents.reader import read
from reconciler.operations.manifest_text import (
    merge_patch,
    read_documents,
    remove_document,
    replace_document,
    split_documents,
)

TEXT = """\
# The web page.
kind: workload
name: "web"   # not the shop
tags: {team: web,   tier: 'front'}
spec:
    type: standard
    containers:
    -   name: main
        image: "web:1.0"   # pinned
        env:
        - {name: B, value: "2"}
        - {name: A, value: "1"}   # the first letter

        ports: [{number: 8080}]
    defaultOptions:
        autoscaling: {maxScale: 3}
---
kind: gvc
name: shop
"""

MEANING = {
    "kind": "workload",
    "name": "web",
    "description": "web",
    "tags": {"team": "web", "tier": "front"},
    "spec": {
        "type": "standard",
        "containers": [
            {
                "name": "main",
                "image": "web:1.0",
                "cpu": "50m",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"number": 8080, "protocol": "http"}],
            }
        ],
        "defaultOptions": {"autoscaling": {"maxScale": 3, "minScale": 1}, "capacityAI": True},
    },
}


def changed(text: str, patch: dict[str, Any]) -> list[str]:
    """Lines with ``-`` and ``+`` between ``TEXT`` and the text in which the document has ``patch``."""
    import difflib

    after = replace_document(text, 0, MEANING, merge_patch(MEANING, patch))
    lines = difflib.unified_diff(text.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def test_nothing_changes_without_a_change() -> None:
    assert replace_document(TEXT, 0, MEANING, MEANING) == TEXT


def test_one_value_changes_one_line() -> None:
    image = {"spec": {"containers": [{**MEANING["spec"]["containers"][0], "image": "web:1.1"}]}}  # type: ignore[index]
    assert changed(TEXT, image) == ['-        image: "web:1.0"   # pinned', '+        image: "web:1.1"       # pinned']


def test_a_default_is_written_only_when_it_changes() -> None:
    assert changed(TEXT, {"description": "The page"}) == ["+description: The page"]
    options = {"spec": {"defaultOptions": {"autoscaling": {"minScale": 2}}}}
    assert changed(TEXT, options) == [
        "-        autoscaling: {maxScale: 3}",
        "+        autoscaling: {maxScale: 3, minScale: 2}",
    ]


def test_a_field_is_removed() -> None:
    assert changed(TEXT, {"tags": {"tier": None}}) == [
        "-tags: {team: web,   tier: 'front'}",
        "+tags: {team: web}",
    ]


def test_members_of_a_list_are_found_by_name() -> None:
    [container] = MEANING["spec"]["containers"]  # type: ignore[index]
    env = [{"name": "A", "value": "one"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}]
    after = replace_document(
        TEXT, 0, MEANING, merge_patch(MEANING, {"spec": {"containers": [{**container, "env": env}]}})
    )
    [found] = yaml.safe_load_all(after.partition("---\n")[0])
    assert sorted(found["spec"]["containers"][0]["env"], key=lambda each: each["name"]) == env
    assert "# the first letter" in after
    assert "cpu" not in after


@pytest.mark.parametrize(
    "text", ["on", "y", "No", "0o7", "1_000", "12:30:45", "~", "1.0", "", "0x1f", "=", "2026-11-23"]
)
def test_a_text_that_some_reader_takes_for_something_else_gets_quotes(text: str) -> None:
    patch = {
        "description": text, "tags": {text: text},
        "spec": {"containers": [{"name": "main", "args": [text], "env": [{"name": "C", "value": text}]}]},
    }  # fmt: skip
    after = replace_document(TEXT, 0, MEANING, merge_patch(MEANING, patch))
    reading = read(after.encode(), text_fields=frozenset())
    assert not reading.faults, after
    value = reading.documents[0].value
    [container] = value["spec"]["containers"]
    found = (value["description"], value["tags"][text], container["args"], container["env"][0]["value"])
    assert found == (text, text, [text], text)


def test_another_document_stays_as_it_is() -> None:
    after = replace_document(
        TEXT, 1, {"kind": "gvc", "name": "shop"}, {"kind": "gvc", "name": "shop", "tags": {"a": "b"}}
    )
    assert after == TEXT + "tags:\n  a: b\n"


def test_a_document_is_removed() -> None:
    assert remove_document(TEXT, 1) == TEXT.partition("---\n")[0]
    assert remove_document(TEXT, 0) == "---\nkind: gvc\nname: shop\n"
    assert remove_document("kind: gvc\nname: shop\n", 0) == ""
    with pytest.raises(ValueError, match="the file has no document"):
        remove_document(TEXT, 2)


def test_json_stays_json() -> None:
    after = replace_document('{"kind": "gvc", "name": "shop"}', 0, {"kind": "gvc"}, {"kind": "gvc", "tags": {"a": "b"}})
    assert '"tags"' in after
    assert after.startswith("{")


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", TEXT, "---\na: 1\n---\nb: 2\n...\n", "%YAML 1.2\n---\na: 1\n", "a: |\n  ---\n  b\n---\nc: 1\n"],
)
def test_the_parts_are_the_text(text: str) -> None:
    parts = split_documents(text)
    assert "".join(parts) in (text, "")
    assert len(parts) == sum(isinstance(each, yaml.DocumentStartEvent) for each in yaml.parse(text))


def test_a_merge_patch_drops_and_replaces() -> None:
    document = {"tags": {"a": "1", "b": "2"}, "spec": {"env": {"x": 1}}}
    patch = {"$replace/tags": {"c": "3"}, "spec": {"$drop/env": None}, "description": "new"}
    assert merge_patch(document, patch) == {"tags": {"c": "3"}, "spec": {}, "description": "new"}


MARKED = [
    ("{kind: gvc, name: a}\n", 0, '{kind: gvc, name: a, tags: {t: "1"}}\n'),
    ('{"kind": "gvc", "name": "a"}\n---\n{"kind": "gvc", "name": "b"}\n', 1,
     '{"kind": "gvc", "name": "a"}\n---\n{"kind": "gvc", "name": "b", tags: {t: "1"}}\n'),
    ("--- {kind: gvc, name: a}\n--- {kind: gvc, name: b}\n", 1,
     '--- {kind: gvc, name: a}\n--- {kind: gvc, name: b, tags: {t: "1"}}\n'),
    ("--- # one\nkind: gvc\nname: a\n", 0, '--- # one\nkind: gvc\nname: a\ntags:\n  t: "1"\n'),
    ("kind: gvc\nname: a\n...\n# the end\n", 0, 'kind: gvc\nname: a\ntags:\n  t: "1"\n...\n# the end\n'),
    ("kind: gvc\r\nname: a\r\n---\r\nkind: gvc\r\nname: b\r\n", 1,
     'kind: gvc\r\nname: a\r\n---\r\nkind: gvc\r\nname: b\r\ntags:\n  t: "1"\n'),
]  # fmt: skip
"""A text, the document that changes in it, and the text with the change."""


@pytest.mark.parametrize(("text", "index", "expected"), MARKED)
def test_documents_on_one_line_and_their_marks_stay(text: str, index: int, expected: str) -> None:
    was = {"kind": "gvc", "name": "ab"[index]}
    after = replace_document(text, index, was, {**was, "tags": {"t": "1"}})
    assert after == expected
    assert len(read(after.encode()).documents) == len(read(text.encode()).documents)


@pytest.mark.parametrize("style", ["|", ">", ">-", "|-"])
@pytest.mark.parametrize("value", ["a\n ", "a\n\tb\n", "a\n\n \n--- ", "\n\t\n...\n", "a\n  # b\n"])
def test_a_text_of_several_lines_is_written_as_it_is(style: str, value: str) -> None:
    text = f"kind: group\nname: a\ntags:\n  b: {style}\n    x\n    y\n# about b\n---\nkind: group\nname: b\n"
    was = read_documents(text)
    wanted = {**was[0], "tags": {"b": value}}
    assert read_documents(replace_document(text, 0, was[0], wanted)) == [wanted, was[1]]


def test_a_merge_patch_adds_and_removes_single_items() -> None:
    """What others have in the list stays, and its order does."""
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    document = {"spec": {"containers": [{"name": "main", "env": env}, {"name": "side"}]}, "links": ["//a", "//b"]}
    added = {"$add/env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}
    patch = {"spec": {"$add/containers": [{"name": "main", **added}]}, "$add/links": ["//b", "//c"]}
    after = merge_patch(document, patch)
    assert after["spec"]["containers"] == [
        {"name": "main", "env": [env[0], {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}, {"name": "side"},
    ]  # fmt: skip
    assert after["links"] == ["//a", "//b", "//c"]
    removed = {"spec": {"$add/containers": [{"name": "main", "$remove/env": ["A", "D"]}]}, "$remove/links": ["//a"]}
    last = merge_patch(after, removed)
    assert [each["name"] for each in last["spec"]["containers"][0]["env"]] == ["B", "C"]
    assert last["links"] == ["//b", "//c"]
    assert document["links"] == ["//a", "//b"], "the document itself is not changed"


@pytest.mark.parametrize("patch", [{"$add/tags": ["a"]}, {"$remove/tags": ["a"]}, {"$add/links": "a"}, {"$add": ["a"]}])
def test_single_items_of_what_is_no_list_are_no_patch(patch: dict[str, object]) -> None:
    """The key stays, as a field that no schema has, so that the change is refused."""
    assert patch.keys() <= merge_patch({"tags": {"a": "b"}, "links": []}, patch).keys()


@pytest.mark.parametrize("text", ["links: [a, b]\n", "links:\n  - a\n  - b\n", "links:\n  - name: a\n"])
def test_the_last_item_of_a_list_can_go(text: str) -> None:
    after = replace_document(text, 0, yaml.safe_load(text), {"links": []})
    assert yaml.safe_load(after) == {"links": []}
