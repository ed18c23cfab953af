"""Changes in the text of a file: what is not changed stays as it is written."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.changes import edits as module
from reconciler.changes.edits import edit_files
from reconciler.changes.requests import ResourceEdit
from reconciler.changes.sealed import Sealing
from reconciler.changes.text import (
    merge_patch,
    read_documents,
    remove_document,
    replace_document,
    split_documents,
)
from reconciler.documents.reader import parse_documents
from reconciler.errors import RefusedError
from reconciler.model.key import Key, Kind
from reconciler.sops.keys import Keyring

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
    assert changed(TEXT, image) == ['-        image: "web:1.0"   # pinned', '+        image: "web:1.1"   # pinned']


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
        "description": text,
        "tags": {text: text},
        "spec": {"containers": [{"name": "main", "args": [text], "env": [{"name": "C", "value": text}]}]},
    }
    after = replace_document(TEXT, 0, MEANING, merge_patch(MEANING, patch))
    reading = parse_documents(after.encode(), text_fields=frozenset())
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
    (
        '{"kind": "gvc", "name": "a"}\n---\n{"kind": "gvc", "name": "b"}\n',
        1,
        '{"kind": "gvc", "name": "a"}\n---\n{"kind": "gvc", "name": "b", tags: {t: "1"}}\n',
    ),
    (
        "--- {kind: gvc, name: a}\n--- {kind: gvc, name: b}\n",
        1,
        '--- {kind: gvc, name: a}\n--- {kind: gvc, name: b, tags: {t: "1"}}\n',
    ),
    ("--- # one\nkind: gvc\nname: a\n", 0, '--- # one\nkind: gvc\nname: a\ntags:\n  t: "1"\n'),
    ("kind: gvc\nname: a\n...\n# the end\n", 0, 'kind: gvc\nname: a\ntags:\n  t: "1"\n...\n# the end\n'),
    (
        "kind: gvc\r\nname: a\r\n---\r\nkind: gvc\r\nname: b\r\n",
        1,
        'kind: gvc\r\nname: a\r\n---\r\nkind: gvc\r\nname: b\r\ntags:\n  t: "1"\n',
    ),
]
"""A text, the document that changes in it, and the text with the change."""


@pytest.mark.parametrize(("text", "index", "expected"), MARKED)
def test_documents_on_one_line_and_their_marks_stay(text: str, index: int, expected: str) -> None:
    was = {"kind": "gvc", "name": "ab"[index]}
    after = replace_document(text, index, was, {**was, "tags": {"t": "1"}})
    assert after == expected
    assert len(parse_documents(after.encode()).documents) == len(parse_documents(text.encode()).documents)


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
        {"name": "main", "env": [env[0], {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]},
        {"name": "side"},
    ]
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


NAMES = ("a", "b", "c", "d")
PATH = "all.yaml"
FORMS = (
    "kind: {kind}\nname: {name}\ndescription: old   # why\n",
    "# About it.\nkind: {kind}\nname: '{name}'\n\n# At the end.\n",
    "{{kind: {kind}, name: {name}, description: 'old'}}\n",
    '{{"kind": "{kind}", "name": "{name}"}}\n',
    "kind: {kind}\nname: {name}\ndescription: |\n  old\n\n  ---\n",
    "kind: {kind}\nname: {name}\ndescription: |+\n  old\n\n",
    "kind: {kind}\nname: {name}\ndescription: old\n...\n",
    "kind: {kind}\r\nname: {name}\r\ndescription: old\r\n",
    "kind: {kind}\nname: {name}\ngvc: shop\n",
    "kind: {kind}\nname: {name}\ngvc: other\n",
    "kind: {kind}\nname: {name}\nname: {name}\n",
    "kind: {kind}\nname: {name}\nsops: {{mac: x}}\n",
    "kind: {kind}\nname: {name}\ntags: &t {{x: '1'}}\ndata: *t\n",
    "# Nothing.\n",
    "",
)
HEADS = ("", "---\n", "--- # next\n", "# Of the file.\n---\n", "%YAML 1.2\n---\n", "\ufeff", "\n\n")
BREAKS = ("---\n", "--- # next\n", "---   \n# Before.\n", "...\n---\n", "...\n")
VALUES = ("new", "a: b # c", "on", "two\nlines\n", "  deep\n\n", "---", "...\n", "%x", "x\u2028y", "\u00e9")
KINDS = (Kind.GROUP, Kind.IDENTITY, Kind.SECRET)

documents = st.builds(
    lambda form, kind, name: form.format(kind=kind, name=name),
    st.sampled_from(FORMS),
    st.sampled_from(KINDS),
    st.sampled_from(NAMES),
)
texts = st.builds(
    lambda head, parts, ends, is_ended: (head + "".join(a + b for a, b in zip(parts, ends, strict=False)) + parts[-1])[
        : None if is_ended else -1
    ],
    st.sampled_from(HEADS) | st.just(""),
    st.lists(documents, min_size=1, max_size=6),
    st.lists(st.sampled_from(BREAKS) | st.just(BREAKS[0]), min_size=5, max_size=5),
    st.booleans(),
)


def edit_of(kind: Kind, name: str, what: str, value: str, is_lenient: bool) -> ResourceEdit:
    """An edit of the resource ``name`` of the GVC ``shop``, if its kind has one."""
    key = Key(kind, "shop" if kind is Kind.IDENTITY else "", name)
    body = {"kind": str(kind), "name": name, "description": "old"}
    after: dict[str, Any] | None = body | {"description": value, "tags": {"team": value}}
    if after is not None and what == "data":
        after["data"] = {"key": value}
    was = None if what == "create" else body
    return ResourceEdit(key, PATH, was, None if what == "delete" else after, what == "data", if_present=is_lenient)


edits = st.builds(
    edit_of,
    st.sampled_from(KINDS),
    st.sampled_from(NAMES),
    st.sampled_from(["change", "change", "data", "delete", "create"]),
    st.sampled_from(VALUES),
    st.just(True) | st.booleans(),
)


@given(texts, st.lists(edits, min_size=1, max_size=6))
@example(
    "kind: group\nname: a\n---\nkind: group\nname: b\n...\nkind: group\nname: c\n",
    [edit_of(Kind.GROUP, "b", "delete", "", True), edit_of(Kind.GROUP, "a", "change", "new", True)],
)
@example(
    '{"kind": "group", "name": "a"}\n---\nkind: group\nname: b\n',
    [edit_of(Kind.GROUP, "b", "delete", "", True), edit_of(Kind.GROUP, "a", "change", "new", True)],
)
@example(
    "# Nothing.\n---\n# Nothing.",
    [edit_of(Kind.GROUP, "a", what, "new", True) for what in ("create", "delete", "create")],
)
@example(
    "kind: group\nname: a\ndescription: |+\n  x",
    [edit_of(Kind.GROUP, "b", "create", "new", True), edit_of(Kind.GROUP, "a", "delete", "", True)],
)
def test_edits_of_a_file_together_are_what_they_are_one_after_the_other(text: str, edits: list[ResourceEdit]) -> None:
    """Each document alone gives the bytes that the whole file gives, split and read anew for each edit."""
    sealing = Sealing(Keyring(()), "any", lambda path: None, "2026-01-01T00:00:00Z")

    def whole() -> str | None:
        before: str | None = text
        return reduce(lambda after, edit: module._apply_edit(edit, after, sealing), edits, before)

    def together() -> str | None:
        return edit_files(edits, {PATH: text}.get, sealing).get(PATH, text)

    assert result_of(together) == result_of(whole)


@given(texts, edits, st.lists(edits, max_size=3))
@example(
    "kind: group\nname: a\ndescription: old\n",
    edit_of(Kind.GROUP, "a", "change", "ours", True),
    [edit_of(Kind.GROUP, "a", "change", "theirs", True)],
)
def test_a_conflict_in_a_document_alone_is_one_in_the_whole_file(
    text: str, edit: ResourceEdit, others: list[ResourceEdit]
) -> None:
    sealing = Sealing(Keyring(()), "any", lambda path: None, "2026-01-01T00:00:00Z")
    try:
        theirs = edit_files(others, {PATH: text}.get, sealing).get(PATH, text)
        read_documents(text)
    except (RefusedError, ValueError, yaml.YAMLError):
        return
    alone = result_of(lambda: module.check_conflicts([edit], {PATH: text}.get, {PATH: theirs}.get, sealing))
    assert alone == result_of(lambda: module._check_conflict(edit, text, theirs, sealing))


def result_of(change: Any) -> Any:
    """What ``change`` returns, or the words of its refusal."""
    try:
        return change()
    except (RefusedError, ValueError, AssertionError, yaml.YAMLError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("count", [3, 30])
def test_plain_edits_of_a_file_never_take_the_whole_file(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_apply_edit", None)
    text = "---\n".join(f"# {number}\nkind: group\nname: g{number}\ndescription: old\n" for number in range(count))
    edits = [
        edit_of(Kind.GROUP, f"g{number}", "delete" if number % 3 == 0 else "change", "new", False)
        for number in range(count)
    ]
    edits.append(edit_of(Kind.GROUP, "more", "create", "new", False))
    sealing = Sealing(Keyring(()), "any", lambda path: None, "2026-01-01T00:00:00Z")
    after = edit_files(edits, {PATH: text}.get, sealing)[PATH]
    assert after is not None
    names = [document["name"] for document in read_documents(after)]
    assert names == [*(f"g{number}" for number in range(count) if number % 3), "more"]
    assert after.count("description: new") == len(names)
    assert after.count("# 1\n") == 1
