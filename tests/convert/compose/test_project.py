"""Compose files are merged, included, extended and selected as compose does it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.convert.compose.dotenv import EnvFileError, parse_env_file
from reconciler.convert.compose.project import MOST_EXTENDED
from reconciler.errors import UnreadableFileError
from tests.convert.compose.kit import project, remarks


def services(*texts: str, **more: str) -> Any:
    """The services of files that are merged in their order; ``more`` are files beside them, by name."""
    files = {f"{number}.yaml": text for number, text in enumerate(texts)}
    found = project({**files, **{f"{name}.yaml": text for name, text in more.items()}}, *files)
    assert remarks(found) == []
    return found.value.get("services")


def test_a_later_file_overrides_scalars_and_appends_lists() -> None:
    merged = services(
        "services: {web: {image: a, command: [x], expose: [1], dns: 1.1.1.1, ports: ['80:80', '81:81']}}",
        "services: {web: {image: b, command: [y], expose: [2, 1], ports: ['80:80']}}",
    )
    assert merged["web"]["image"] == "b"
    assert merged["web"]["command"] == ["y"]
    assert merged["web"]["expose"] == [2, 1]
    assert [each["target"] for each in merged["web"]["ports"]] == [81, 80]
    assert merged["web"]["dns"] == ["1.1.1.1"]


def test_pairs_and_mounts_merge_by_name_and_target() -> None:
    merged = services(
        "services: {web: {environment: [A=1, B=1], volumes: ['old:/d', './c:/c'], depends_on: [db]}}",
        "services: {web: {environment: {A: 2}, volumes: ['new:/d'], depends_on: {cache: {required: no}}}}",
    )["web"]
    assert merged["environment"] == {"A": 2, "B": "1"}
    assert [(each["source"], each["target"]) for each in merged["volumes"]] == [("./c", "/c"), ("new", "/d")]
    assert [*merged["depends_on"]] == ["db", "cache"]


def test_tags_reset_and_replace_what_an_earlier_file_has() -> None:
    merged = services(
        "services: {web: {image: a, ports: ['80:80'], labels: [x=1], tty: yes}}",
        "services: {web: {ports: !override ['81:81'], labels: !reset null, tty: !reset false}}",
    )["web"]
    assert merged == {"image": "a", "ports": [{"target": 81, "published": 81}]}


def test_words_and_numbers_that_yaml_reads_in_two_ways_are_texts() -> None:
    merged = services("services: {a: &a {restart: no, ports: [22:22], user: 0440}, b: *a}")
    assert merged["a"]["restart"] == merged["b"]["restart"] == "no"
    assert merged["b"]["ports"] == [{"target": 22, "published": 22}]
    assert merged["a"]["user"] == "0440"


def test_a_service_extends_another_one_in_its_file_or_in_a_file_beside_it() -> None:
    merged = services(
        "services: {web: {extends: {service: near}, image: w}, near: {extends: {file: far.yaml, service: base}}}",
        far="services: {base: {extends: root, environment: {A: 1}}, root: {image: r, environment: {A: 0, B: 0}}}",
    )
    assert merged["web"] == {"image": "w", "environment": {"A": 1, "B": 0}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("services: {a: {extends: a}}", "the service a extends itself"),
        ("services: {a: {extends: b}, b: {extends: a}}", "the service a extends itself"),
        ("services: {a: {extends: b}}", "there is no service of this name to extend"),
        ("services: {a: {extends: {file: x.yaml}}}", "the extended file cannot be read: it does not exist"),
        ("include: [x.yaml]", "the included file cannot be read: it does not exist"),
        ("include: [0.yaml]", "this entry of `include` includes itself"),
        ("include: [{}]", "this entry of `include` names no `path`"),
        ("services: {a: {image: '${X:?why}'}}", "the variable X is required: why"),
        ("services: {a: {ports: [web]}}", "a port is [[IP:]PUBLISHED:]TARGET[/PROTOCOL]"),
        ("services: {a: {ports: [1-60000]}}", "a range of 60,000 ports is left out: at most 100 are declared"),
        ("services: {a: {ports: [9-8]}}", "a range begins with its lowest port"),
        ("- a", "a compose file is a mapping with `services`"),
    ],
)
def test_what_is_wrong_is_a_note_at_its_place(text: str, message: str) -> None:
    found = project({"0.yaml": text})
    assert message in remarks(found)


def test_a_long_chain_of_services_ends() -> None:
    chain = ", ".join(f"s{number}: {{extends: s{number + 1}}}" for number in range(MOST_EXTENDED + 5))
    found = project({"0.yaml": f"services: {{{chain}, s{MOST_EXTENDED + 5}: {{}}}}"})
    assert any(f"has more than {MOST_EXTENDED} services above it" in each for each in remarks(found))


def test_included_files_have_their_own_directory_and_variables() -> None:
    composed = project(
        {
            "compose.yaml": "include: [{path: sub/db.yaml}]\nservices: {web: {image: '${TAG}', env_file: web.env}}",
            "sub/db.yaml": "services: {db: {image: '${TAG}', env_file: db.env}}",
            "sub/.env": "TAG=inner\nOWN=1",
        },
        "compose.yaml",
        environ={"TAG": "outer"},
    )
    assert composed.value["services"]["web"]["image"] == composed.value["services"]["db"]["image"] == "outer"
    bases = {name: composed.origins["services", name].base for name in ("web", "db")}
    assert bases == {"web": "", "db": "sub"}


def test_a_resource_is_not_declared_by_an_included_file_too() -> None:
    composed = project(
        {"0.yaml": "include: x.yaml\nservices: {a: {image: a}}", "x.yaml": "services: {a: {image: b}}"}, "0.yaml"
    )
    assert remarks(composed) == ["a in `services` is also declared by an included file"]


def test_services_of_profiles_that_are_off_are_left_out_with_a_note() -> None:
    text = "services: {a: {image: a}, b: {image: b, profiles: [dev]}, c: {image: c, profiles: [dev, test]}}"
    off, dev, every = (project({"0.yaml": text}, profiles=names) for names in ([], ["test"], ["*"]))
    assert [*off.value["services"]] == ["a"]
    assert off.inactive == {"b", "c"}
    assert [each.at for each in off.notes] == [("services", "b"), ("services", "c")]
    assert [*dev.value["services"]] == ["a", "c"]
    assert not every.inactive


def test_a_first_file_that_is_missing_is_an_error() -> None:
    with pytest.raises(UnreadableFileError):
        project({}, "compose.yaml")


def test_an_unset_variable_is_noted_once() -> None:
    found = project({"0.yaml": "services: {a: {image: 'x:$TAG', hostname: $TAG}}"})
    assert remarks(found) == ["the variable TAG is not set, and counts as empty"]


def test_an_env_file_has_comments_quotes_and_variables() -> None:
    text = """# comment
A=1 # behind
export B="two ${A} \\$A\\n"
C='$A # 3'
D
E="first
second"
F=a#b
G: x
H=pa$5
I=${NONE:-i}
"""
    assert parse_env_file(text.encode(), {"D": "d"}) == {
        "A": "1",
        "B": "two 1 $A\n",
        "C": "$A # 3",
        "D": "d",
        "E": "first\nsecond",
        "F": "a#b",
        "G": "x",
        "H": "pa$5",
        "I": "i",
    }
    assert parse_env_file(b"A='1'\nB=$A", {}, plain=True) == {"A": "'1'", "B": "$A"}


def test_an_env_file_names_the_line_that_it_cannot_read_and_no_value() -> None:
    with pytest.raises(EnvFileError, match=r"^line 2 of it is not NAME=value$"):
        parse_env_file(b"A=1\nsecret value", {})


@given(st.binary(max_size=200))
def test_no_content_of_an_env_file_makes_it_fail_in_another_way(raw: bytes) -> None:
    with contextlib.suppress(EnvFileError):
        parse_env_file(raw, {"A": "1"})


HOSTILE = {
    "large": b"a: " + b"x" * 10_000_000,
    "many": b"services: {a: {ports: [" + b"80," * 4_000_000 + b"]}}",
    "deep": b"services: " + b"[" * 5_000,
    "bomb": b"a: &a [x]\n" + b"".join(b"%c: &%c [%s]\n" % (c + 1, c + 1, b"*%c," % c * 20) for c in range(97, 110)),
    "cycle": b"services: &a {web: *a}",
    "bytes": bytes(range(256)),
    "repeated": b"services: {a: {}, a: {}}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_a_fault_with_a_place(name: str) -> None:
    found = project({"0.yaml": HOSTILE[name]})
    assert found.faults
    assert found.value == {}


_WORDS = st.sampled_from(
    [
        "services",
        "web",
        "ports",
        "volumes",
        "extends",
        "environment",
        "include",
        "depends_on",
        "build",
        "8080:80",
        "a:/b",
        "x",
        "$X",
        "networks",
        "env_file",
        "secrets",
        "profiles",
        "labels",
        "name",
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries({"services": st.dictionaries(_WORDS, ANYTHING, max_size=3)} | {"include": ANYTHING}), ANYTHING
)
def test_no_types_make_it_fail(first: Any, second: Any) -> None:
    project({"0.yaml": json.dumps(first), "1.yaml": json.dumps({"services": {"web": second}})})
