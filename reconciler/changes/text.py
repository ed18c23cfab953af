"""Changes documents in the text of a file: comments, order, quotes and everything else in it stay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import yaml

from reconciler.documents.editing.edits import edit_text
from reconciler.documents.editing.json_edits import JsonDocuments
from reconciler.documents.encoding import is_json_list
from reconciler.documents.reader import SINGLE, parse_documents
from reconciler.documents.writer import render_document
from reconciler.errors import ParseError

_HEAD = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n|%[^\n]*\n)*---(?:[ \t]*\r?\n|[ \t]+#[^\n]*\n|[ \t]+)")
_END = re.compile(r"^\.\.\.(?=\s|\Z)", re.MULTILINE)
_IRREGULAR = re.compile(r"^(?:\.\.\.|%)|\r(?!\n)|[\x85\u2028\u2029\ufeff]", re.MULTILINE)
"""What makes a document depend on those before it, or a line break of YAML that is none elsewhere."""
_MARKER = re.compile(r"---(?=\s)")

Fields = Mapping[str, Any]


def replace_document(text: str, index: int, was: Fields, desired: Fields) -> str:
    """``text`` with document ``index`` changed so that a reader who saw ``was`` now sees ``desired``.

    ``was`` is what the document means, such as its normal form with all defaults. What ``desired`` has as ``was`` does
    stays as it is written, or left out. Raises ValueError if there is no such document, or it is no mapping.
    """
    if _is_json(text):
        in_json = JsonDocumentList(text)
        in_json.replace(_check_index(index, len(in_json)), was, desired)
        return in_json.text()
    parts = split_documents(text)
    parts[index] = _change_part(parts[_check_index(index, len(parts))], was, desired)
    return "".join(parts)


def remove_document(text: str, index: int) -> str:
    """``text`` without document ``index``; "" if no other document is left. Raises ValueError."""
    if _is_json(text):
        in_json = JsonDocumentList(text)
        in_json.remove(_check_index(index, len(in_json)))
        return in_json.text()
    parts = split_documents(text)
    del parts[_check_index(index, len(parts))]
    rest = "".join(parts)
    return rest if any(yaml.load_all(rest, Loader=yaml.CSafeLoader)) else ""


def pick_documents(text: str, is_picked: Sequence[bool]) -> str | None:
    """``text`` with those of its documents that ``is_picked`` has True for; None if it is no list in JSON."""
    if not _is_list(text):
        return None
    texts = JsonDocuments(text)
    for number, stays in enumerate(is_picked):
        if not stays:
            texts.remove(number)
    return texts.text()


class DocumentBody(NamedTuple):
    """The text of a document without its ``---``, and the number of lines before it in its file."""

    text: str
    lines_before: int


def read_body(text: str, index: int) -> DocumentBody | None:
    """The text of document ``index``; None in a list in JSON, whose items have no text of their own."""
    if _is_list(text):
        return None
    parts = split_documents(text)
    start, end = _find_bounds(parts[index])
    return DocumentBody(parts[index][start:end], "".join([*parts[:index], parts[index][:start]]).count("\n"))


def replace_body(text: str, index: int, after: str) -> str:
    """``text`` with ``after`` as the text of document ``index``, which ``read_body`` returns."""
    parts = split_documents(text)
    start, end = _find_bounds(parts[index])
    parts[index] = f"{parts[index][:start]}{after}{parts[index][end:]}"
    return "".join(parts)


def format_document(body: Mapping[str, Any]) -> str:
    """The text of a file with the document ``body``."""
    return render_document(body)


def split_documents(text: str) -> list[str]:
    """The parts of a YAML text, one for each document, each with the ``---`` before it; joined, they are the text.

    Of a list in JSON, the items.
    """
    if _is_list(text):
        return JsonDocuments(text).texts()
    lines = text.splitlines(keepends=True)
    starts = [
        event.start_mark.line
        for event in yaml.parse(text, Loader=yaml.CSafeLoader)
        if isinstance(event, yaml.DocumentStartEvent) and event.start_mark is not None
    ]
    if not starts:
        return []
    starts[0] = 0
    return ["".join(lines[start:end]) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def read_documents(text: str) -> list[Any]:
    """The values of ``split_documents``, as manifests are read; None for a part that is empty or has a fault."""
    if _is_list(text):
        return _read_json(text)
    return [_read_value(part) for part in split_documents(text)]


class IrregularTextError(ParseError):
    """A text whose documents cannot be changed one by one: it has to be changed as a whole."""


class JsonDocumentList:
    """The documents of a text in JSON, with the methods of ``DocumentList``."""

    def __init__(self, text: str) -> None:
        """Raises IrregularTextError if the text is no JSON."""
        if not _is_json(text):
            raise IrregularTextError
        self._values = dict(enumerate(_read_json(text)))
        self._texts = JsonDocuments(text)
        self._numbers: dict[tuple[str, str], list[int]] = {}
        for number, value in self._values.items():
            self._numbers.setdefault(_find_subject(value), []).append(number)

    def __len__(self) -> int:
        return len(self._values)

    def text(self) -> str:
        """The whole text."""
        return self._texts.text()

    def find_named(self, kind: str, name: str) -> list[tuple[int, Any]]:
        """Numbers and values of the documents with this ``kind`` and ``name``, in their order."""
        return [(number, self._values[number]) for number in self._numbers.get((kind, name), ())]

    def value(self, number: int) -> Any:
        """What document ``number`` is, None for one that has a fault."""
        return self._values[number]

    def value_after(self, number: int, was: Fields, desired: Fields) -> Any:
        """What document ``number`` would be after ``replace``."""
        changed = deepcopy(self._values[number])
        if not isinstance(changed, dict):
            raise ValueError("the document is no mapping, or has a fault")
        _merge_changes(changed, was, desired)
        if _find_subject(changed) != _find_subject(self._values[number]):
            raise IrregularTextError
        return changed

    def replace(self, number: int, was: Fields, desired: Fields) -> bool:
        """Change document ``number``; whether that changes the text."""
        value = self.value_after(number, was, desired)
        is_changed = self._texts.replace(number, self._values[number], value)
        self._values[number] = value
        return is_changed

    def remove(self, number: int) -> None:
        """Remove document ``number``; the text is empty if no other is left."""
        self._numbers[_find_subject(self._values.pop(number))].remove(number)
        self._texts.remove(number)

    def append(self, _: Mapping[str, Any]) -> None:
        """Nothing: a new resource gets a file of its own, in YAML."""
        raise IrregularTextError


class DocumentList:
    """The documents of a text, split and read once, so that many changes cost no more than the text.

    Each change has the result of ``replace_document``, ``remove_document``, or of a new document at the end. A document
    keeps its number when others are removed. Methods raise IrregularTextError, and change nothing, where a change of
    one document could change what others are.
    """

    def __init__(self, text: str) -> None:
        if _IRREGULAR.search(text) or text.lstrip().startswith(("{", "[")):
            raise IrregularTextError
        try:
            self._parts = dict(enumerate(split_documents(text)))
        except yaml.YAMLError:
            raise IrregularTextError from None
        if not self._parts:
            raise IrregularTextError
        self._values = {number: _read_value(part) for number, part in self._parts.items()}
        self._numbers: dict[tuple[str, str], list[int]] = {}
        self._next = len(self._parts)
        for number, value in self._values.items():
            self._numbers.setdefault(_find_subject(value), []).append(number)

    def text(self) -> str:
        """The whole text."""
        return "".join(self._parts.values())

    def find_named(self, kind: str, name: str) -> list[tuple[int, Any]]:
        """Numbers and values of the documents with this ``kind`` and ``name``, in their order."""
        return [(number, self._values[number]) for number in self._numbers.get((kind, name), ())]

    def value(self, number: int) -> Any:
        """What document ``number`` is, None for one that is empty or has a fault."""
        return self._values[number]

    def value_after(self, number: int, was: Fields, desired: Fields) -> Any:
        """What document ``number`` would be after ``replace``."""
        return self._replacement(number, was, desired)[1]

    def replace(self, number: int, was: Fields, desired: Fields) -> bool:
        """Change document ``number`` as ``replace_document`` does; whether that changes the text."""
        part, value = self._replacement(number, was, desired)
        if part == self._parts[number]:
            return False
        self._parts[number], self._values[number] = part, value
        return True

    def remove(self, number: int) -> None:
        """Remove document ``number``; the text is empty if no other is left."""
        rest = (part for other, part in self._parts.items() if other != number)
        try:
            is_any = any(yaml.load(part, Loader=yaml.CSafeLoader) for part in rest)
        except (yaml.YAMLError, ValueError):
            raise IrregularTextError from None
        if not is_any:
            self._parts, self._values, self._numbers = {}, {}, {}
            return
        self._numbers[_find_subject(self._values[number])].remove(number)
        del self._parts[number], self._values[number]

    def append(self, body: Mapping[str, Any]) -> None:
        """Add ``format_document(body)`` at the end."""
        if not self._parts:
            raise IrregularTextError
        last = next(reversed(self._parts))
        part, value = _check_regular(f"---\n{format_document(body)}", is_first=False, is_last=True)
        if not self._parts[last].endswith("\n"):
            ended = f"{self._parts[last]}\n"
            ended_value = _read_value(ended)
            if _find_subject(ended_value) != _find_subject(self._values[last]):
                raise IrregularTextError
            self._parts[last], self._values[last] = ended, ended_value
        number, self._next = self._next, self._next + 1
        self._parts[number], self._values[number] = part, value
        self._numbers.setdefault(_find_subject(value), []).append(number)

    def _replacement(self, number: int, was: Fields, desired: Fields) -> tuple[str, Any]:
        """The text and the value of document ``number`` after a change."""
        changed = _change_part(self._parts[number], was, desired)
        first, last = next(iter(self._parts)), next(reversed(self._parts))
        part, value = _check_regular(changed, is_first=number == first, is_last=number == last)
        if _find_subject(value) != _find_subject(self._values[number]):
            raise IrregularTextError
        return part, value


def _check_regular(part: str, *, is_first: bool, is_last: bool) -> tuple[str, Any]:
    """``part`` with its value, if it is one document wherever it is in a text. Raises IrregularTextError."""
    begins = not part.lstrip().startswith("{") if is_first else _MARKER.match(part)
    if not begins or _IRREGULAR.search(part) or not (is_last or part.endswith("\n")):
        raise IrregularTextError
    try:
        if len(split_documents(part)) != 1:
            raise IrregularTextError
    except yaml.YAMLError:
        raise IrregularTextError from None
    return part, _read_value(part)


def _find_subject(value: Any) -> tuple[str, str]:
    """Kind and name of a document, both empty if it has none."""
    kind, name = (value.get("kind"), value.get("name")) if isinstance(value, dict) else ("", "")
    return (kind, name) if isinstance(kind, str) and isinstance(name, str) else ("", "")


def _read_value(part: str) -> Any:
    reading = parse_documents(part.encode())
    return reading.documents[0].value if reading.documents and not reading.faults else None


def merge_patch(document: Any, patch: Any) -> Any:
    """``document`` with the JSON merge patch ``patch``: null removes a field.

    The keys ``$replace/FIELD`` and ``$drop/FIELD`` replace a field as a whole, and remove it. ``$add/FIELD`` merges the
    items of its list into those of FIELD that have the same name, and appends the others; ``$remove/FIELD`` removes
    items, objects by their names. So a patch of some items keeps those that others add meanwhile.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for name, value in patch.items():
        if name.startswith("$replace/"):
            merged[name.removeprefix("$replace/")] = value
        elif name.startswith("$drop/"):
            merged.pop(name.removeprefix("$drop/"), None)
        elif (items := _patch_items(merged, name, value)) is not None:
            merged[name.partition("/")[2]] = items
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _patch_items(document: Mapping[str, Any], name: str, items: Any) -> list[Any] | None:
    """The list of ``document`` after ``$add/FIELD`` or ``$remove/FIELD``; None where ``name`` or a value is no such."""
    verb, _, field = name.partition("/")
    present = document.get(field) or []
    if verb not in ("$add", "$remove") or not field or not isinstance(items, list) or not isinstance(present, list):
        return None
    if verb == "$remove":
        removed = {*map(_identify_item, items), *map(_write_json, items)}
        return [item for item in present if _identify_item(item) not in removed and _write_json(item) not in removed]
    patched = list(present)
    numbers = {_identify_item(item): number for number, item in enumerate(patched)}
    for item in items:
        number = numbers.setdefault(_identify_item(item), len(patched))
        if number == len(patched):
            patched.append(merge_patch({}, item))
        else:
            patched[number] = merge_patch(patched[number], item)
    return patched


def _identify_item(item: Any) -> str:
    """What distinguishes an item of a list from others: its name, or all of it where it has none."""
    name = item.get("name") if isinstance(item, Mapping) else None
    return _write_json(name if isinstance(name, str) else item)


def _write_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _check_index(index: int, count: int) -> int:
    if not 0 <= index < count:
        raise ValueError(f"the file has no document {index + 1}")
    return index


def _is_list(text: str) -> bool:
    """Whether ``text`` is a list in JSON, whose items are documents."""
    return is_json_list(text.encode()) and _is_json(text)


def _is_json(text: str) -> bool:
    """Whether ``text`` is JSON, and no mapping or list of YAML in brackets, or several documents."""
    return text.lstrip()[:1] in ("{", "[") and not any(
        fault.rule not in SINGLE for fault in parse_documents(text.encode(), is_json=True).faults
    )


def _read_json(text: str) -> list[Any]:
    """The values of the documents of a text in JSON; None for one with a fault."""
    reading = parse_documents(text.encode(), is_json=True)
    values = {document.index: document.value for document in reading.documents}
    count = 1 + max((document.index for document in (*reading.documents, *reading.partial)), default=-1)
    return [values.get(index) for index in range(count)]


def _find_bounds(part: str) -> tuple[int, int]:
    """Where the document of ``part`` begins, after its ``---``, and where it ends, before its ``...``."""
    head = _HEAD.match(part)
    start = head.end() if head else 0
    end = _END.search(part, start)
    return start, end.start() if end else len(part)


def _change_part(part: str, was: Fields, desired: Fields) -> str:
    start, end = _find_bounds(part)
    return part[:start] + _edit_body(part[start:end], was, desired) + part[end:]


def _edit_body(body: str, was: Fields, desired: Fields) -> str:
    read = _read_value if isinstance(_read_value(body), dict) else _load_plain
    old = read(body)
    if not isinstance(old, dict):
        raise ValueError("the document is no mapping")
    new = deepcopy(old)
    _merge_changes(new, was, desired)
    return edit_text(body, old, new, read)


def _load_plain(text: str) -> Any:
    try:
        return yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError:
        return None


def _merge_changes(document: Any, was: Any, desired: Fields) -> None:
    """Change the mapping ``document`` where ``desired`` differs from ``was``."""
    former = was if isinstance(was, Mapping) else {}
    for name in [name for name in document if name not in desired and name in former]:
        del document[name]
    for name, value in desired.items():
        if name in former and former[name] == value:
            continue
        document[name] = _merge_value(document.get(name), former.get(name), value)


def _merge_value(node: Any, was: Any, desired: Any) -> Any:
    """``node`` as written, changed to ``desired``."""
    if isinstance(node, dict) and isinstance(desired, Mapping):
        _merge_changes(node, was, desired)
        return node
    if isinstance(node, list) and isinstance(desired, Sequence) and not isinstance(desired, str):
        return _merge_list(node, was if isinstance(was, list) else [], desired)
    return desired


def _merge_list(node: list[Any], was: list[Any], desired: Sequence[Any]) -> Any:
    """Members that have a name keep what is written for that name; others are replaced as a whole."""
    names = [item.get("name") if isinstance(item, Mapping) else None for item in desired]
    if not names or None in names or len(set(names)) != len(names):
        return list(desired)
    numbers = {item["name"]: number for number, item in enumerate(node) if isinstance(item, dict) and "name" in item}
    before = {item["name"]: item for item in was if isinstance(item, Mapping) and "name" in item}
    members = {
        item["name"]: item
        if item["name"] not in numbers
        else node[numbers[item["name"]]]
        if before.get(item["name"]) == item
        else _merge_value(node[numbers[item["name"]]], before.get(item["name"]), item)
        for item in desired
    }
    if [name for name in before if name in members] != [name for name in names if name in before]:
        node[:] = list(members.values())
        return node
    # The order is as it was. As written it may differ: normal form sorts lists whose order has no meaning.
    for name in reversed(list(numbers)):
        if name in members:
            node[numbers[name]] = members.pop(name)
        else:
            del node[numbers[name]]
    node.extend(members.values())
    return node
