"""Files of Kamal and Podman in the shapes of public ones, and their conversion: a file for each sentence.

``REWRITE_CASES=1`` writes the present output into the cases; read it before you commit it.
"""

from __future__ import annotations

import os
import posixpath
import random
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.convert.budget import Budget
from reconciler.convert.compose.nodes import Node, Verbatim
from reconciler.convert.compose.project import FileReader
from reconciler.convert.compose.reading import read_compose
from reconciler.convert.files import ConversionOptions, ConvertedFiles, convert_files
from reconciler.convert.kamal import fields as kamal_fields
from reconciler.convert.kamal.convert import without_statements
from reconciler.convert.quadlet import fields as quadlet_fields
from reconciler.convert.quadlet.calendar import read_times
from reconciler.convert.quadlet.units import read_unit
from reconciler.documents.reader import parse_documents
from reconciler.documents.writer import render_document, render_stream
from reconciler.errors import OutsideFileError, UnreadableFileError
from reconciler.model.cron import Cron
from tests.convert.compose.test_cases import assert_valid
from tests.convert.test_nothing_is_lost import mutated
from tests.support.cases import CASES
from tests.support.examples import thin_out

KAMAL = sorted((CASES / "kamal").glob("*.yaml"))
QUADLETS = sorted((CASES / "quadlet").glob("*.yaml"))
FILES = [*KAMAL, *QUADLETS]
LEAST = 10
GVC = "kind: gvc\nname: shop\nspec: {staticPlacement: {locationLinks: [//location/here]}}\n"


@cache
def case_of(file: Path) -> dict[str, Any]:
    (document,) = parse_documents(file.read_bytes(), text_fields=frozenset()).documents
    value: dict[str, Any] = document.value
    return value


def named(case: Mapping[str, Any]) -> dict[str, str]:
    """The files that a person names: all but those that only these name."""
    return {name: text for name, text in case["files"].items() if name in case.get("named", case["files"])}


def converted(case: Mapping[str, Any]) -> ConvertedFiles:
    """Its files as they are converted; what they name is read below the directory of their project only."""
    contents = {name: text.encode() for name, text in named(case).items()}

    def open_project(directory: str) -> FileReader:
        def read_file(path: str) -> bytes:
            if posixpath.relpath(path, directory or ".").startswith(".."):
                raise OutsideFileError("it is outside of the directory of the project")
            if path not in case["files"]:
                raise UnreadableFileError("it does not exist")
            return str(case["files"][path]).encode()

        return read_file

    return convert_files(contents, ConversionOptions("shop", "", case.get("destination", ""), open_project))


def messages(converted_files: ConvertedFiles) -> list[str]:
    return [
        f"{each.path}:{each.line}:{each.column}: {each.severity}: {each.message} [{each.rule}]"
        f"{chr(10) if each.suggestion else ''}{'    ' if each.suggestion else ''}{each.suggestion}"
        for each in converted_files.findings
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_a_case_is_converted_as_its_file_expects(file: Path, tmp_path: Path) -> None:
    case = case_of(file)
    found = converted(case)
    output = render_stream(draft.body for draft in found.drafts)
    now = {**case, "output": output, "messages": "\n".join([*messages(found), ""])}
    if os.environ.get("REWRITE_CASES"):
        file.write_text(render_document(now))
        return
    assert now == case
    if ": error: " not in now["messages"]:
        assert_valid(f"{GVC}---\n{output}", "[convert-missing]" in now["messages"], tmp_path)


def test_there_are_enough_cases_and_each_has_a_sentence() -> None:
    assert min(len(KAMAL), len(QUADLETS)) >= LEAST
    sentences = [case_of(file)["description"] for file in FILES]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def forms(node: Node, form: str = "") -> Iterator[str]:
    """The forms of the fields of deploy.yml, as its tables write them."""
    for name, child in node.fields.items():
        here = kamal_fields._find_shared_form(f"{form}.{name}" if form else name)
        yield here
        if here in ("servers", "accessories"):
            yield f"{here}.*"
            for member in child.fields.values():
                yield from forms(member, f"{here}.*")
        else:
            yield from forms(child, here)


def test_every_field_of_deploy_yml_is_in_a_case() -> None:
    used: set[str] = set()
    for file in KAMAL:
        for text in named(case_of(file)).values():
            documents, _ = read_compose("deploy.yml", without_statements(text.encode()))
            used |= {each for document in documents for each in forms(Verbatim([], Budget()).nodes(document, ""))}
    known = kamal_fields.CARRIED.keys() | kamal_fields.LEFT_OUT.keys() | kamal_fields.SAME_HERE
    assert known - used == set()


def test_every_key_that_quadlets_carry_is_in_a_case() -> None:
    used = {
        f"{entry.section}.{entry.key}"
        for file in QUADLETS
        for name, text in case_of(file)["files"].items()
        for entry in read_unit(name, text.encode()).entries
    }
    assert quadlet_fields.CARRIED.keys() - used == set()


@pytest.mark.parametrize("file", QUADLETS, ids=lambda file: file.stem)
def test_every_line_of_a_quadlet_is_carried_over_or_remarked_on(file: Path) -> None:
    """Without a line, the manifests or the remarks differ, or the tables say that it has no meaning here."""
    case = case_of(file)
    files = case["files"]
    before, silent = outcome(case), []
    for name, text in named(case).items():
        unit = read_unit(name, text.encode())
        if unit.suffix in (".kube", ".build"):
            continue  # a remark names the whole unit
        lines = text.split("\n")
        for entry in unit.entries:
            form = f"{entry.section}.{entry.key}"
            if form in quadlet_fields.SAME_HERE or entry.section == "Install" or entry.section.startswith("X-"):
                continue
            at = next(number for number, line in enumerate(lines) if line.startswith(f"{entry.key}={entry.value}"[:25]))
            without = {**files, name: "\n".join([*lines[:at], "", *lines[at + 1 :]])}
            if outcome({**case, "files": without}) == before:
                silent.append((name, lines[at]))
    assert [each for each in silent if each[1] not in NOTHING_LOST] == []


NOTHING_LOST = {
    "After=miniflux-db.service": "Requires says it too",
    "BindsTo=miniflux-db.service": "Requires says it too",
    "Requires=miniflux-db.service": "After says it too",
    "ContainerName=miniflux": "the file has the name too",
    "ContainerName=miniflux-db": "the file has the name too",
    "Image=two:1": "its unit is left out",
    "PublishPort=80:80": "its pod is left out",
    "After=network-online.target": "no container of the files",
    "Wants=network-online.target": "no container of the files",
    "HealthCmd=none": "no probe is what there is anyway",
    "StopTimeout=10": "within what every replica has",
    "Image=app:1": "a later line clears it",
    "Image=": "the last one counts",
    "Image=web:1": "a drop-in has another",
    "Image=nobody:1": "there is no unit of the drop-in",
    "PublishPort=80:8080": "a drop-in clears it",
    "Environment=B=unit": "a drop-in has another",
    "Environment=B=five": "a later drop-in has another",
    "Exec=never: the nearer one has the name": "the nearer one has the name",
    "Type=oneshot": "its timer says it too",
    "Description=Backup each night": "it is of the timer, and the container has one",
    "OnCalendar=": "there is nothing to clear",
    "OnCalendar=daily": "its timer is left out",
    "OnCalendar=hourly": "its timer is left out",
}
"""Lines whose loss changes nothing, and why."""


def outcome(case: Mapping[str, Any]) -> tuple[str, frozenset[tuple[str, str]]]:
    found = converted(case)
    remarks = frozenset((f"{each.path}:{each.line}", f"{each.rule} {each.message}") for each in found.findings)
    return render_stream(draft.body for draft in found.drafts), remarks


CANARY = "kanarienvogel"


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_no_remark_has_a_value(file: Path) -> None:
    """The values of variables, commands and checks are replaced in turn."""
    for name, text in named(case_of(file)).items():
        for old in sorted({word for word in text.replace("=", " ").replace(",", " ").split() if len(word) > 3}):
            for sign in ("=", ": ", "[") if file in KAMAL else ("=",):
                changed = text.replace(f"{sign}{old}", f"{sign}{CANARY}{old}")
                if changed == text or is_a_name(old, text):
                    continue
                found = converted({**case_of(file), "files": {**case_of(file)["files"], name: changed}})
                shown = [f"{each.message}{each.suggestion}" for each in found.findings]
                assert [each for each in shown if CANARY in each] == [], (old, sign)


def is_a_name(word: str, text: str) -> bool:
    """Whether ``word`` is one of a service, a volume, a key of a secret or the like, which remarks may name."""
    line = next(each for each in text.split("\n") if word in each)
    return any(key in line for key in NAMING)


NAMING = (
    "service",
    "secret",
    "Secret=",
    "Volume=",
    "VolumeName",
    "volumes",
    "directories",
    "Name=",
    "primary_role",
    "Mount=",
    "Pod=",
    "accessories",
    "servers",
    "local",
    "files",
)
"""What stands on a line with a name that a remark may have."""


@pytest.mark.parametrize("file", thin_out(KAMAL, lambda file: file.stem))
def test_no_type_in_deploy_yml_makes_a_conversion_fail(file: Path) -> None:
    dice = random.Random(file.stem)
    (name, text), *_ = named(case_of(file)).items()
    documents, _ = read_compose(name, without_statements(text.encode()))
    for _ in range(60):
        changed = render_document({"service": "a", "image": "b", **_mapping(mutated(documents[0].value, dice))})
        found = converted({**case_of(file), "files": {**case_of(file)["files"], name: changed}})
        assert parse_documents(render_stream(draft.body for draft in found.drafts).encode()).faults == []


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_KEYS = st.sampled_from(sorted({each.partition(".")[2] for each in quadlet_fields.CARRIED} | {"Bogus", "Network"}))
_VALUES = st.text("a1=,:%\"'\\[]{}/.- \t", max_size=12) | st.sampled_from(["b.pod", "c.volume", "type=env", "a.image"])
_LINES = st.lists(
    st.builds("{}={}".format, _KEYS, _VALUES) | st.sampled_from(["[Container]", "[Pod]", "[X", "#", "\\"])
)


@given(_LINES, _LINES, _LINES)
def test_no_line_of_a_quadlet_makes_a_conversion_fail(first: list[str], second: list[str], third: list[str]) -> None:
    texts = ("\n".join(["[Container]", *lines]) for lines in (first, second, third))
    found = converted({"files": dict(zip(("a.container", "b.pod", "c.volume"), texts, strict=True))})
    assert parse_documents(render_stream(draft.body for draft in found.drafts).encode()).faults == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"Environment=A=a\x07b", "control-character"),
        (b"Image=a\x00", "control-character"),
        (b"Label=a\xe2\x80\xaeb=c", "convert-malformed"),
        (b"Environment=A=\xff", "encoding"),
        (b'Entrypoint=["\\u0007"]', ""),
        (b'HealthCmd=["\\ud800"]', ""),
    ],
)
def test_what_no_manifest_can_have_is_an_error_or_stays_a_text(line: bytes, rule: str) -> None:
    found = convert_files({"a.container": b"[Container]\nImage=a:1\n" + line}, ConversionOptions("shop"))
    assert [each.rule for each in found.findings if each.severity == "error"] == ([rule] if rule else [])
    assert parse_documents(render_stream(draft.body for draft in found.drafts).encode()).faults == []


@given(st.binary(max_size=200), st.sampled_from(["a.container", "a.pod", "a.volume", "a.kube", "deploy.yml"]))
def test_no_content_makes_a_conversion_fail(raw: bytes, name: str) -> None:
    convert_files({name: raw}, ConversionOptions())


TIMES = {
    "minutely": "* * * * *",
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "weekly": "0 0 * * 1",
    "monthly": "0 0 1 * *",
    "quarterly": "0 0 1 */3 *",
    "semiannually": "0 0 1 1,7 *",
    "yearly": "0 0 1 1 *",
    "*:0/15": "*/15 * * * *",
    "*:5/20": "5,25,45 * * * *",
    "0/6:00:00": "0 */6 * * *",
    "02..05:30": "30 2-5 * * *",
    "*-*-* 03:00": "0 3 * * *",
    "*-*-1,15 12:00:00": "0 12 1,15 * *",
    "*-1/2-01 00:00": "0 0 1 */2 *",
    "Mon..Fri *-*-* 09:30:00": "30 9 * * 1-5",
    "Sat,Sun 10:00": "0 10 * * 0,6",
    "Fri..Mon 10:00": "0 10 * * 0,1,5,6",
    "Tuesday 10:00 UTC": "0 10 * * 2",
    "12-24 18:00": "0 18 24 12 *",
    "*:00 Europe/Berlin": "0 * * * *",
    "Mon *-*-01 00:00": "",
    "2027-01-01 00:00": "",
    "*-*~01 00:00": "",
    "*:*:30": "",
    "*:*:0/10": "",
    "25:00": "",
    "Mumday 10:00": "",
    "tomorrow": "",
    "10:00 tomorrow": "",
    "": "",
    "*:0/0": "",
}
"""Expressions of systemd → the schedule of cron that says the same, "" where none does."""


@pytest.mark.parametrize("text", TIMES)
def test_a_time_is_a_schedule_where_cron_has_an_equal(text: str) -> None:
    times = read_times(text)
    assert (times.schedule if times else "") == TIMES[text]
    if times and times.schedule:
        Cron.parse(times.schedule)


@given(st.text("*-:/.,~0123456789 MonFriUTC", max_size=20))
def test_no_time_makes_a_conversion_fail(text: str) -> None:
    times = read_times(text)
    if times and times.schedule:
        Cron.parse(times.schedule)
