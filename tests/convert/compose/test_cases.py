"""Compose projects in the shapes of public ones, and their conversion: a file for each sentence.

``REWRITE_CASES=1`` writes the present output into the cases; read it before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.convert.compose.convert import convert_project
from reconciler.convert.compose.fields import CARRIED, KNOWN, LEFT_OUT, SAME_HERE, steps_of
from reconciler.convert.compose.project import Project
from reconciler.convert.compose.reading import read_compose
from reconciler.convert.drafts import Converted
from reconciler.convert.notes import ConversionNote, make_findings
from reconciler.documents.reader import parse_documents
from reconciler.documents.writer import render_document, render_stream
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Pointer, Severity
from reconciler.pipeline.externals import ExternalResources
from reconciler.review.folder import check_folder
from tests.convert.compose.kit import project
from tests.convert.compose.test_project import ANYTHING
from tests.support.cases import CASES
from tests.support.examples import thin_out


def form(at: Pointer) -> str:
    """As the tables write it."""
    return ".".join(steps_of(at))


FILES = sorted((CASES / "compose").glob("*.yaml"))
LEAST = 30
LOCATION = "aws-us-west-2"


@cache
def case_of(file: Path) -> dict[str, Any]:
    (document,) = parse_documents(file.read_bytes(), text_fields=frozenset({"environ"})).documents
    value: dict[str, Any] = document.value
    return value


def composed(files: Mapping[str, str]) -> list[str]:
    """The files of a case that are read by default: the first one and its override."""
    return [name for index, name in enumerate(files) if not index or name == "compose.override.yaml"]


def loaded(case: Mapping[str, Any], files: Mapping[str, str] | None = None) -> Project:
    return project(
        files or case["files"],
        *composed(case["files"]),
        environ=case.get("environ", {}),
        profiles=case.get("profiles", ()),
    )


def messages(found: Project, result: Converted) -> list[str]:
    places = sorted([*found.faults, *make_findings(result.remarks, found.contents)])
    return [f"{each.path}:{each.line}:{each.column}: {each.severity}: {each.message} [{each.rule}]" for each in places]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_case_is_converted_as_its_file_expects(file: Path, tmp_path: Path) -> None:
    case = case_of(file)
    loaded_project = loaded(case)
    result = convert_project(loaded_project, locations=[LOCATION])
    output = render_stream(draft.body for draft in result.drafts)
    now = {**case, "output": output, "messages": "\n".join([*messages(loaded_project, result), ""])}
    if os.environ.get("REWRITE_CASES"):
        file.write_text(render_document(now))
        return
    assert now == case
    if ": error: " not in now["messages"]:
        assert_valid(output, "[convert-missing]" in now["messages"], tmp_path)


def assert_valid(output: str, missing: bool, folder: Path) -> None:
    """The manifests have no errors; ``missing``: they refer to resources that must exist."""
    (folder / "all.yaml").write_text(output)
    checked = check_folder(folder, ManifestContext("acme"), ExternalResources(settings_unknown=True))
    errors = [each for each in checked.findings if each.severity is Severity.ERROR]
    assert [each for each in errors if not (missing and each.rule == "missing-reference")] == []


def test_there_are_enough_cases_and_each_has_a_sentence() -> None:
    assert len(FILES) >= LEAST
    sentences = [case_of(file)["description"] for file in FILES]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def test_every_field_of_the_tables_is_in_a_case() -> None:
    used = {form(at) for file in FILES for at in loaded(case_of(file)).origins if at}
    used |= {"services.*.extends", "services.*.profiles"}
    assert {each for each in KNOWN if each not in used} == set()


UNTRIED = ("wrong", "overrides", "unreadable")
"""Cases that are not converted, and `overrides`: test_project shows which file wins."""


def keys_of(value: Any, at: Pointer = ()) -> Iterator[Pointer]:
    """The path of every key and of every entry of a list."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in steps:
        yield (*at, step)
        yield from keys_of(member, (*at, step))


def without(value: Any, at: Pointer) -> Any:
    """A copy of ``value`` without what is at ``at``."""
    step, *rest = at
    if isinstance(value, list):
        remaining = [] if not rest else [without(value[int(step)], tuple(rest))]
        return [*value[: int(step)], *remaining, *value[int(step) + 1 :]]
    if not rest:
        return {key: member for key, member in value.items() if key != step}
    return {**value, step: without(value[step], tuple(rest))}


def outcome(case: Mapping[str, Any], files: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    loaded_project = loaded(case, files)
    result = convert_project(loaded_project, locations=[LOCATION])
    remarks = frozenset((each.rule, each.message) for each in result.remarks)
    return render_stream(draft.body for draft in result.drafts), remarks | {
        ("", each.message) for each in loaded_project.faults
    }


@pytest.mark.parametrize("file", thin_out((file for file in FILES if file.stem not in UNTRIED), lambda file: file.stem))
def test_every_key_is_carried_over_or_remarked_on(file: Path) -> None:
    """Without a key, the manifests or the remarks differ; else a remark names it, or the key above that is left out."""
    case = case_of(file)
    loaded_project = loaded(case)
    remarks = convert_project(loaded_project, locations=[LOCATION]).remarks
    before, silent = outcome(case, case["files"]), []
    for name in loaded_project.contents:
        # As the reader has it: aliases are written out, and each of their places is tried.
        (document,), _ = read_compose(name, case["files"][name].encode())
        named = {at for at in keys_of(document.value) if any(names(each, name, at) for each in remarks)}
        for at in keys_of(document.value):
            if at in named or is_explained(at, document.value) or are_all_named(at, document.value, named):
                continue
            changed = yaml.safe_dump(without(document.value, at), sort_keys=False)
            if outcome(case, {**case["files"], name: changed}) == before:
                silent.append((name, at))
    assert silent == []


WHOLE = ("convert-left-out", "convert-missing", "compose-network", "compose-extension", "compose-profile")
"""Rules whose remarks are about all that is below their place."""


def names(remark: ConversionNote, path: str, at: Pointer) -> bool:
    """Whether ``remark`` is about ``at``, or about a key above it: only those below a service or the like count."""
    is_above = remark.path == path and remark.at == at[: len(remark.at)]
    return is_above and (remark.at == at or remark.rule in WHOLE or len(remark.at) > 2) and bool(remark.at)


def are_all_named(at: Pointer, document: Any, named: set[Pointer]) -> bool:
    """Whether remarks name every entry of what is at ``at``."""
    entries = [
        (*at, step)
        for (step,) in (
            (below[len(at)],) for below in keys_of(document) if below[: len(at)] == at and len(below) == len(at) + 1
        )
    ]
    return bool(entries) and named.issuperset(entries)


def value_at(document: Any, at: Pointer) -> Any:
    for step in at:
        document = document[step]
    return document


def is_explained(at: Pointer, document: Any) -> bool:
    """Whether the value is one that changes nothing, here and by the tables."""
    value, here = value_at(document, at), form(at)
    return here in SAME_HERE or value in ([], {}) or value in NOTHING_LOST.get(here, ())


NOTHING_LOST: dict[str, tuple[Any, ...]] = {
    "services.*.cpus": (0,),
    "services.*.depends_on.*.condition": ("service_started", "service_healthy"),
    "services.*.depends_on.*.required": (True,),
    "services.*.deploy.restart_policy": ({"condition": "none"},),
    "services.*.healthcheck": ({"test": ["NONE"]}, {"disable": True}),
    "services.*.healthcheck.test": (["NONE"],),
    "services.*.ports.app_protocol": ("http",),
    "services.*.ports.protocol": ("tcp",),
    "services.*.profiles": (["dev"], "dev"),
    "services.*.stop_grace_period": ("30s",),
    "services.*.volumes.read_only": (True,),
    "services.*.volumes.type": ("volume", "tmpfs"),
}
"""Form of a field → values that are the default, what the platform does in any case, or a profile that is on."""

CANARY = "kanarienvogel"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_remark_has_a_value(file: Path) -> None:
    """Every text of the project is replaced in turn by a variable with a secret."""
    case = case_of(file)
    name = next(iter(case["files"]))
    for old in {text for text in case["files"][name].split() if text.isalnum() and len(text) > 2}:
        changed = {**case["files"], name: case["files"][name].replace(f" {old}\n", " ${CANARY}\n")}
        if changed == case["files"]:
            continue
        found = loaded({**case, "environ": {**case.get("environ", {}), "CANARY": CANARY}}, changed)
        result = convert_project(found)
        shown = [f"{each.message}{each.suggestion}" for each in (*found.faults, *result.remarks)]
        assert [each for each in shown if CANARY in each] == [], old


def test_a_value_of_an_env_file_or_secret_is_in_no_remark() -> None:
    files = {
        "compose.yaml": "services: {a: {image: a, env_file: [a.env, b.env], secrets: [s], environment: {X: $X, A: }}}\n"
        "secrets: {s: {file: s}}",
        "a.env": f'A={CANARY}\nB="{CANARY}\x01"\n',
        "b.env": f"not a line {CANARY}",
        "s": f"{CANARY}\x01",
    }
    found = project(files, "compose.yaml", environ={"X": f"{CANARY}\x01", "A": CANARY})
    remarks = convert_project(found).remarks
    assert len(remarks) > 3
    assert not any(CANARY in f"{each.message}{each.suggestion}" for each in remarks)


_SERVICE_FIELDS = sorted({each.split(".")[2] for each in KNOWN if each.startswith("services.*.")})
ODD: list[Any] = [None, 1, "x", [], {}, ["x"], {"x": 1}, [[]], [{}]]
_SERVICE = st.dictionaries(st.sampled_from(_SERVICE_FIELDS), ANYTHING, max_size=4)
_RESOURCE = st.dictionaries(
    st.sampled_from(["file", "external", "name", "content", "environment", "labels", "driver_opts"]),
    ANYTHING,
    max_size=3,
)
_PROJECT = st.fixed_dictionaries(
    {"services": st.dictionaries(st.sampled_from(["web", "x"]), _SERVICE, min_size=1)},
    optional={
        name: st.dictionaries(st.sampled_from(["x", "web"]), _RESOURCE | ANYTHING)
        for name in ("volumes", "secrets", "configs", "networks")
    },
)


@given(_PROJECT)
def test_no_types_make_a_conversion_fail(value: Any) -> None:
    loaded_project = project({"compose.yaml": yaml.safe_dump(value)})
    result = convert_project(loaded_project)
    assert parse_documents(render_stream(draft.body for draft in result.drafts).encode()).faults == []
    make_findings(result.remarks, loaded_project.contents)


@pytest.mark.parametrize(("field", "value"), [*product(_SERVICE_FIELDS, ODD)])
def test_no_type_of_a_field_makes_a_conversion_fail(field: str, value: Any) -> None:
    convert_project(project({"compose.yaml": yaml.safe_dump({"services": {"web": {"image": "a", field: value}}})}))


_SIGNS = st.text("ab./~[]\"'x-*", max_size=5) | st.sampled_from([".common", "x.y", "services.a", "deploy.mode", ""])
_ODD_KEYS: st.SearchStrategy[Any] = st.recursive(
    st.just("text"), lambda inner: st.dictionaries(_SIGNS, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(_SIGNS, _ODD_KEYS, max_size=3), st.dictionaries(_SIGNS, _ODD_KEYS, max_size=3))
def test_no_sign_in_a_key_makes_a_conversion_fail(whole: dict[str, Any], service: dict[str, Any]) -> None:
    value = {"services": {"web": {"image": "a", **service}, **{key: {"image": "b"} for key in service}}, **whole}
    loaded_project = project({"compose.yaml": yaml.safe_dump(value)})
    result = convert_project(loaded_project)
    assert parse_documents(render_stream(draft.body for draft in result.drafts).encode()).faults == []
    make_findings(result.remarks, loaded_project.contents)


def test_a_key_with_dots_is_not_taken_for_a_field_in_another_one() -> None:
    found = project({"compose.yaml": "services: {web: {image: a, deploy.mode: replicated}}\n.common: &c {a: b}"})
    remarks = [each.message for each in convert_project(found).remarks]
    assert "`deploy.mode` has no counterpart and is left out" in remarks
    assert "`.common` has no counterpart and is left out" in remarks


def test_fields_that_are_carried_over_are_not_left_out_whatever_they_are() -> None:
    assert CARRIED.keys() & LEFT_OUT.keys() <= {
        "services.*.build",
        "services.*.deploy.resources.reservations.cpus",
        "services.*.restart",
        "services.*.deploy.resources.reservations.memory",
        "services.*.deploy.restart_policy.condition",
    }
