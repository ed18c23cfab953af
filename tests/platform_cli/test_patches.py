"""The patch between two manifests, as the API carries it out: it leads to the second, and keeps what others did."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.changes import text as manifest_text
from reconciler.documents.editing.patches import assign_fields, make_patch
from reconciler.errors import UsageError
from reconciler.platform_cli.commands.resources import query_spec

NAMES = st.sampled_from("abc")
VALUES = st.integers(0, 2) | st.text("xy/", max_size=2)


def named(members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Lists of objects with names, of links, and of anything."""
    objects = st.dictionaries(NAMES, st.dictionaries(st.sampled_from("de"), members, max_size=2), max_size=3)
    lists = objects.map(lambda found: [{"name": name, **each} for name, each in found.items()])
    links = st.lists(st.sampled_from(["/a", "//b", "/c"]), max_size=3)
    return lists | links | st.lists(members, max_size=3) | st.dictionaries(NAMES, members, max_size=2)


DOCUMENTS = st.dictionaries(NAMES, st.recursive(VALUES, named, max_leaves=12), max_size=3)


@given(DOCUMENTS, DOCUMENTS)
def test_a_patch_leads_from_any_manifest_to_any_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert manifest_text.merge_patch(before, make_patch(before, after)) == after


@pytest.mark.parametrize(
    ("texts", "patch"),
    [
        (("spec.containers.main.image=b",), {"spec": {"$add/containers": [{"name": "main", "image": "b"}]}}),
        (
            ("spec.containers.main.env.COLOR=1",),
            {"spec": {"$add/containers": [{"name": "main", "$add/env": [{"name": "COLOR", "value": "1"}]}]}},
        ),
        (
            ("spec.containers.main.env.OLD=a=b",),
            {"spec": {"$add/containers": [{"name": "main", "$add/env": [{"name": "OLD", "value": "a=b"}]}]}},
        ),
        (
            ("spec.containers.main.env.OLD.value=new",),
            {"spec": {"$add/containers": [{"name": "main", "$add/env": [{"name": "OLD", "value": "new"}]}]}},
        ),
        (
            ("spec.containers.bare.env.FIRST=true",),
            {"spec": {"$add/containers": [{"name": "bare", "$add/env": [{"name": "FIRST", "value": "true"}]}]}},
        ),
        (("memberLinks+=//user/b",), {"$add/memberLinks": ["//user/b"]}),
        (("memberLinks-=//user/a",), {"memberLinks": []}),
        (("tags.a.b=1",), {"tags": {"a.b": "1"}}),
    ],
)
def test_a_property_that_is_set_is_all_that_changes(texts: tuple[str, ...], patch: dict[str, Any]) -> None:
    env = [{"name": "OLD", "value": "old"}]
    before = {
        "spec": {"containers": [{"name": "main", "image": "a", "env": env}, {"name": "bare", "image": "a"}]},
        "memberLinks": ["//user/a"],
        "tags": {},
    }
    patched = make_patch(before, assign_fields(before, texts))
    # An empty list has no items to name; either way it is empty then.
    assert patched in (patch, {"$remove/memberLinks": ["//user/a"]})
    assert manifest_text.merge_patch(before, patched) == assign_fields(before, texts)


@pytest.mark.parametrize("text", ["spec.containers.main=a", "spec.ports.web=1", "spec.containers.main.env.A+=1"])
def test_an_item_of_another_list_has_no_single_value(text: str) -> None:
    with pytest.raises(UsageError, match="is an item of a list; name one of its members"):
        assign_fields({"spec": {"containers": [{"name": "main", "env": []}], "ports": []}}, (text,))


def test_the_link_of_a_relation_is_the_one_that_documents_have() -> None:
    spec = query_spec("acme", "all", ("name=//x",), ("a=//x",), ("gvc=//gvc/shop", "org=/org/acme", "deployment"))
    assert spec["terms"] == [
        {"property": "name", "op": "=", "value": "//x"},
        {"tag": "a", "op": "=", "value": "//x"},
        {"rel": "gvc", "op": "=", "value": "/org/acme/gvc/shop"},
        {"rel": "org", "op": "=", "value": "/org/acme"},
        {"rel": "deployment", "op": "exists"},
    ]
