"""What is true for any bytes: each function takes a file's bytes and raises Wrong where it is not."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from reconciler.convert.compose.convert import convert_project as convert_compose
from reconciler.convert.compose.project import Project, load_project
from reconciler.convert.export.convert import normalise_resources
from reconciler.convert.files import ConversionOptions, convert_files
from reconciler.convert.kubernetes.convert import convert_kubernetes_resources as convert_kubernetes
from reconciler.convert.notes import make_findings
from reconciler.convert.reader import read_all, read_kubernetes
from reconciler.convert.rules import RULEBOOK
from reconciler.documents.editing.json_edits import JsonDocuments
from reconciler.documents.encoding import check_encoding
from reconciler.documents.json.recognition import is_json_manifest
from reconciler.documents.limits import LIMITS, Limits
from reconciler.documents.locator import Locator
from reconciler.documents.reader import parse_documents, read_json_events
from reconciler.documents.redaction import visible_lines
from reconciler.documents.types import Document
from reconciler.documents.writer import render_stream
from reconciler.errors import UnreadableFileError
from reconciler.manifests.decoder import NO_MANIFEST, Decoded, decode_manifests
from reconciler.manifests.gvc_resolution import resource_of
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Fault, Finding, Severity
from reconciler.model.key import GVC_SCOPED
from reconciler.model.resource import GVC_PLACEHOLDER, Manifest
from reconciler.printable import UNSAFE
from reconciler.rulebook import load_rulebook
from tests.fuzz.canary import CANARY, broken, is_only_secret
from tests.fuzz.revisions import checked, shown, stepped
from tests.support.mutations import places

SECONDS = 1.0
"""CPU time that one file of ``BYTES`` at most may take, however it is made."""
BYTES = 1 << 16
BETWEEN = b"\n---\n"
THEN = b'\n---\n"then"\n---\n'
HEAD = 4
"""Bytes before a saved input that hold its length."""
COMPOSE_FILE = "compose.yaml"
UNITS = (
    "web.container",
    "db.container",
    "all.pod",
    "own.volume",
    "own.network",
    "own.image",
    "own.kube",
    "web.timer",
    "web.container.d/1.conf",
    "container.d/2.conf",
    "named",
)
"""Names of the quadlets of an input, in their order."""
NAMED = "named"
"""What is read of every file of a project that others name."""
KAMAL = ("deploy.yml", "deploy.on.yml", ".kamal/secrets.on", NAMED)
"""Names of the files of a project of Kamal, in their order."""
TIGHT = Limits(depth=4, aliases=3, nodes=40, document_bytes=300, file_bytes=4000, documents=3, faults=5)
"""Limits that ordinary files break."""

DIALECTS = (ManifestContext("acme", secret_key=b"k" * 32), ManifestContext("acme", "corp", b"k" * 32))
LONGEST = 1_000
"""Characters of a message, and of a suggestion."""
_CONTROL = re.compile(rf"[\x00-\x09\x0b-\x1f{UNSAFE}]")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


class BrokenProperty(AssertionError):
    """An input for which something does not hold that holds for all."""


def reading(raw: bytes) -> None:
    """The reader: faults within the file and without what they must not quote, values within the limits."""
    parsed = _timed(parse_documents, raw)
    _within(parsed.faults, raw)
    _silent(parsed.faults)
    tight = parse_documents(raw, TIGHT)
    _within(tight.faults, raw)
    if len(tight.faults) > TIGHT.faults or len(tight.documents) > TIGHT.documents:
        raise BrokenProperty("more was reported or read than the limits allow")
    locator = Locator(raw)
    for document in parsed.documents:
        _readable(document)
        located = locator.of(document.index)
        ends = _ends(raw)
        for pointer in _pointers(document.value):
            for place in (located.value(pointer), located.key(pointer)):
                _placed(place, ends, f"the place of {pointer}")


def decoding(raw: bytes) -> None:
    """The decoder: what holds for the reader, the same answer twice, known rules, a normal form that stays itself."""
    dialect = DIALECTS[len(raw) % 7 == 0]
    decoded = _timed(decode_manifests, raw, dialect)
    _within(decoded.faults, raw)
    _known(fault.rule for fault in decoded.faults)
    if is_only_secret(raw):
        if any(CANARY in f"{each.message} {each.suggestion}" for each in decoded.faults):
            raise BrokenProperty("a fault reveals a secret")
        for form in (raw, broken(raw)):
            if any(CANARY in line for line in visible_lines(form) if line):
                raise BrokenProperty("a line of a secret is shown")
    if _sometimes(raw) and decode_manifests(raw, dialect) != decoded:
        raise BrokenProperty("the same bytes were decoded to something else")
    if not decoded.faults:
        for manifest in decoded.manifests:
            _check_normal_form(manifest, dialect)


def reading_json(raw: bytes) -> None:
    """A file in JSON: it is a manifest or not; JSON is read as by others, and stays JSON when it is changed."""
    is_manifest = _timed(is_json_manifest, raw)
    decoded = _timed(lambda raw: decode_manifests(raw, DIALECTS[0], is_json=True), raw)
    _within(decoded.faults, raw)
    _known(fault.rule for fault in decoded.faults)
    if not is_manifest and decoded != NO_MANIFEST:
        raise BrokenProperty("a file that is no manifest is read")
    is_text = check_encoding(raw, LIMITS, is_stream=True) is None
    if is_text and parse_documents(raw, is_json=True) != read_json_events(raw):
        raise BrokenProperty("a file is read otherwise than its events are")
    parsed = _timed(lambda raw: parse_documents(raw, text_fields=frozenset(), is_json=True), raw)
    _within(parsed.faults, raw)
    _silent(parsed.faults)
    try:
        value = json.loads(raw.decode(), parse_constant=_refused)
    except (ValueError, RecursionError):
        if not parsed.faults:
            raise BrokenProperty("what is no JSON is read") from None
        return
    if any(fault.rule == "syntax" and "surrogates" not in fault.message for fault in parsed.faults):
        raise BrokenProperty("JSON is refused")
    if not parsed.faults:
        values = value if isinstance(value, list) else [value]
        if json.dumps([each.value for each in parsed.documents]) != json.dumps(values):
            raise BrokenProperty("JSON has another value")
        _changed(raw.decode(), values)


def _refused(word: str) -> None:
    raise ValueError(word)


def _changed(text: str, values: list[Any]) -> None:
    """Change the first document, and remove the last one."""
    if not values or not isinstance(values[0], dict):
        return
    documents = JsonDocuments(text)
    values_after = [{**dict([*values[0].items()][1:]), "added": [1, {"x": None}]}, *values[1:]]
    documents.replace(0, values[0], values_after[0])
    if len(values_after) > 1:
        documents.remove(len(values_after) - 1)
        values_after.pop()
    after = json.loads(documents.text())
    if json.dumps(after if isinstance(after, list) else [after], sort_keys=True) != json.dumps(
        values_after, sort_keys=True
    ):
        raise BrokenProperty("a change of JSON has another value")


def checking(raw: bytes) -> None:
    """The whole check of a directory with one file, up to the text that people see."""
    reported = _timed(checked, raw)
    _known(finding.rule for finding in reported)
    _within(reported, raw)
    text = shown(reported, raw)
    if _CONTROL.search(text):
        raise BrokenProperty("what is shown has control characters in it")
    if is_only_secret(raw) and CANARY in text:
        raise BrokenProperty("what is shown reveals a secret")
    if _sometimes(raw) and checked(raw) != reported:
        raise BrokenProperty("the same file was found to be something else")


def composing(raw: bytes) -> None:
    """A compose project of one file: converted or refused, within the file and the time, and the output is read."""
    project = _timed(_project, raw)
    converted = _timed(lambda _: convert_compose(project), raw)
    remarks = make_findings(converted.remarks, project.contents)
    _within([*project.faults, *remarks], raw)
    if parse_documents(render_stream(draft.body for draft in converted.drafts).encode()).faults:
        raise BrokenProperty("the manifests of a project cannot be read")


def _project(raw: bytes) -> Project:
    def read_file(path: str) -> bytes:
        if path != COMPOSE_FILE:
            raise UnreadableFileError("it does not exist")
        return raw

    return load_project([COMPOSE_FILE], {"SET": "value", "LONG": "x" * 1_000}, ["on"], read_file)


def converting(raw: bytes) -> None:
    """Kubernetes documents and exports: converted or refused, within the file and the time, and the output is read."""
    contents = {"all.yaml": raw}
    for read_documents, convert in (
        (read_kubernetes, convert_kubernetes),
        (lambda files: read_all(files, frozenset({"tags"})), lambda sources: normalise_resources(sources, "acme")),
    ):
        sources, faults = read_documents(contents)
        converted = _timed(convert, sources)
        _within([*faults, *make_findings(converted.remarks, contents)], raw)
        if parse_documents(render_stream(draft.body for draft in converted.drafts).encode()).faults:
            raise BrokenProperty("the manifests of a conversion cannot be read")


def deploying(raw: bytes) -> None:
    """A project of Kamal, parted by lines of ``---``: converted or refused, within the file and the time, and the
    output is read."""
    parts = raw.split(BETWEEN, len(KAMAL) - 1)
    files = dict(zip(KAMAL, parts, strict=False))
    _of_files({KAMAL[0]: parts[0]}, files, "on" if parts[1:] else "", raw)


def uniting(raw: bytes) -> None:
    """Quadlets, parted by lines of ``---``: a container, a pod, a volume and others, as ``deploying``."""
    files = dict(zip(UNITS, raw.split(BETWEEN)[: len(UNITS)], strict=False))
    _of_files({path: content for path, content in files.items() if path != NAMED}, files, "", raw)


def _of_files(named: dict[str, bytes], files: dict[str, bytes], destination: str, raw: bytes) -> None:
    def read_file(path: str) -> bytes:
        if path not in files and NAMED not in files:
            raise UnreadableFileError("it does not exist")
        return files[path] if path in files else files[NAMED]

    options = ConversionOptions("shop", "", destination, lambda _: read_file)
    conversion = _timed(lambda _: convert_files(named, options), raw)
    for path, content in files.items():
        here = [each for each in conversion.findings if each.path == path]
        _within(here, content)
    _known_to_conversions(each.rule for each in conversion.findings)
    if parse_documents(render_stream(draft.body for draft in conversion.drafts).encode()).faults:
        raise BrokenProperty("the manifests of a conversion cannot be read")
    if _sometimes(raw) and convert_files(named, options) != conversion:
        raise BrokenProperty("the same files were converted to something else")


def _known_to_conversions(rules: Iterable[str]) -> None:
    unknown = set(rules) - load_rulebook().keys() - RULEBOOK.keys()
    if unknown:
        raise BrokenProperty(f"no rule is called {', '.join(sorted(unknown))}")


def stepping(raw: bytes) -> None:
    """Two revisions, parted by the document ``"then"``, each document a file of its own.

    A load that knows the first finds the errors in the second that a fresh load finds, and no other warning.
    """
    halves = [half.split(BETWEEN) for half in raw.split(THEN)]
    if len(halves) != 2:
        return
    before, after = ({f"shop/{number:02d}.yaml": text for number, text in enumerate(half)} for half in halves)
    results = stepped(before, after)
    if results is None:
        return
    step, fresh = (
        {(each.path, each.line, each.column, each.rule, each.severity, each.message) for each in one} for one in results
    )
    wrong = (step - fresh) | {one for one in fresh - step if one[4] is Severity.ERROR}
    if wrong:
        where = "on the way only" if min(wrong) in step else "by a fresh load only"
        raise BrokenProperty(f"found {where}: {min(wrong)}")


def _timed(check: Callable[..., Any], raw: Any, *rest: Any) -> Any:
    """What ``check`` returns. Raises Wrong where it takes too long, and does so twice."""
    for _ in range(2):
        began = time.process_time()
        result = check(raw, *rest)
        if (spent := time.process_time() - began) < SECONDS:
            return result
    raise BrokenProperty(f"{len(raw):,} bytes took {spent:.2f} s")


def _sometimes(raw: bytes) -> bool:
    """True for a quarter of all inputs, and always for the same."""
    return hashlib.blake2b(raw, digest_size=1).digest()[0] < 64


def _readable(document: Document) -> None:
    slots = list(places(document.value))
    if len(slots) > LIMITS.nodes:
        raise BrokenProperty(f"a document of {len(slots):,} values was read")
    for slot in slots:
        if isinstance(slot.step, str) and "\0" in slot.step:
            raise BrokenProperty("a stand-in for a faulty key got out")
        if isinstance(slot.value, float) and not abs(slot.value) < float("inf"):
            raise BrokenProperty("a number that is not finite got out")


def _pointers(value: Any) -> Iterable[tuple[Any, ...]]:
    """The way to every value, the first 300."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    for _ in range(300):
        if not waiting:
            return
        pointer, here = waiting.pop(0)
        yield pointer
        members = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        waiting.extend(((*pointer, step), member) for step, member in members)


def _ends(raw: bytes) -> list[int]:
    """The number of characters of each line."""
    return [len(line) for line in _BREAK.split(raw.decode("utf-8-sig", "replace"))]


def _within(faults: Iterable[Fault | Finding], raw: bytes) -> None:
    """Raise Wrong where a fault is not in the file, or its text has other characters than lines of text."""
    ends: list[int] = []
    for fault in faults:
        if "\n" in fault.message + fault.suggestion or _CONTROL.search(fault.message + fault.suggestion):
            raise BrokenProperty(f"{fault.rule} has control characters: {fault.message!r} {fault.suggestion!r}")
        if max(len(fault.message), len(fault.suggestion)) > LONGEST:
            raise BrokenProperty(f"{fault.rule} quotes too much: {fault.message[:200]!r} {fault.suggestion[:200]!r}")
        ends = ends or _ends(raw)
        if (fault.line, fault.column) != (0, 0):
            _placed((fault.line, fault.column), ends, f"{fault.rule} ({fault.message})")


def _placed(place: tuple[int, int], ends: list[int], what: str) -> None:
    line, column = place
    if not (1 <= line <= len(ends) and 1 <= column <= ends[line - 1] + 1):
        raise BrokenProperty(f"{what} stands at {line}:{column}, which is not in the file")


def _silent(faults: Iterable[Fault]) -> None:
    """The reader quotes nothing, since what it cannot read may be a password."""
    for fault in faults:
        if CANARY in f"{fault.message} {fault.suggestion}":
            raise BrokenProperty(f"{fault.rule} quotes what it cannot read")


def _known(rules: Iterable[str]) -> None:
    unknown = set(rules) - load_rulebook().keys()
    if unknown:
        raise BrokenProperty(f"no rule is called {', '.join(sorted(unknown))}")


def _check_normal_form(manifest: Manifest, dialect: ManifestContext) -> None:
    """A normal form decodes to itself; secrets, whose bodies are masked, aside."""
    if manifest.secret_data or (manifest.kind in GVC_SCOPED and manifest.gvc == GVC_PLACEHOLDER):
        return
    resource = resource_of(manifest, manifest.gvc, "a.yaml", "a")
    again: Decoded = decode_manifests(resource.body, ManifestContext(dialect.org))
    # A default may be one that cannot be written, such as a probe's port where the container's is below 80.
    if any(one.body != resource.body for one in again.manifests):
        raise BrokenProperty(f"the normal form of {resource.key} decodes to something else")
