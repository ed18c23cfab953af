"""The lines of a manifest file that may be shown: none that may be part of a secret.

It works on text, since most files that are shown are broken. In doubt it hides a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from reconciler.model.kinds.table import TABLE, DataPrivacy

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""Line breaks of the parser, so that line numbers match those of findings."""

_BOUNDARY = re.compile(r"(?:---|\.\.\.)(?=\s|$)(.*)", re.DOTALL)
_QUIET = re.compile(r"\s*(?:#.*)?", re.DOTALL)
_PLAIN = re.compile(
    r"""
    ((apiVersion|kind|name|description|gvc|type|tags):
     (?:[ ]+([^\s"'|>&*!?{}\[\]%@`,#-][^"'#]*?|"[^"\\]*"|'[^']*'))?)
    \s*(?:\s\#.*)?""",
    re.VERBOSE | re.DOTALL,
)
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:\s|$)")
_FLOW = re.compile(r"""\{\s*(["']?)kind\1\s*:\s*(["']?)([a-z0-9]+)\2\s*[,}]""")
_KEYS = re.compile(r"""(["']?)\b(kind|[a-zA-Z]*[dD]ata)\b\1\s*:\s*["']?([^\s"',}]*)""")
_DOUBTFUL = re.compile(r"""[?&!*{\[\ufeff]|"[^"]*\\|(?:<<|["']?(kind|data|stringData|binaryData))["']?\s*:""")

_OPEN = frozenset(str(kind) for kind, traits in TABLE.items() if traits.data is not DataPrivacy.SECRET)
_HARMLESS = frozenset(str(kind) for kind, traits in TABLE.items() if traits.data is DataPrivacy.PUBLIC)
"""Kinds whose ``data`` has only names and links."""


def lines_of(raw: bytes) -> list[str]:
    """The lines of a file as the parser counts them; bytes that are not UTF-8 are replaced."""
    return _BREAK.split(raw.decode("utf-8-sig", "replace"))


def visible_lines(raw: bytes) -> list[str | None]:
    """The lines of a manifest file; None for a line that may have secret data.

    A document is shown as a whole if it begins with a known kind other than secret. Of any other document only the
    first lines with plain fields such as ``name`` are shown, without comments. What looks like a second document
    without a separator counts as one, if all before it is shown.
    """
    shown: list[str | None] = []
    for document in _split_documents(lines_of(raw)):
        head = list(_list_head_lines(document))
        rest = document[len(head) :]
        if _can_show_document(head, rest) or (rest and _opens_in_flow(document)):
            shown += document
        else:
            shown += _show_torn(document) if rest else head
    return shown


def _show_torn(document: Sequence[str]) -> Iterator[str | None]:
    """The lines of a document that may be several: in doubt only those of the first ones are shown."""
    is_open = True
    for part in _split_torn(document):
        head = list(_list_head_lines(part)) if is_open else []
        is_open = is_open and _can_show_document(head, part[len(head) :], is_torn=True)
        yield from part if is_open else [*head, *[None] * (len(part) - len(head))]


def _split_torn(document: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each part that begins with a key of the outermost mapping that occurs again."""
    part: list[str] = []
    keys: set[str] = set()
    for line in document:
        key = _KEY.match(line)
        if key is not None and key[1] in keys:
            yield part
            part, keys = [], set()
        if key is not None:
            keys.add(key[1])
        part.append(line)
    yield part


def _split_documents(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each document, with the separator before it."""
    document: list[str] = []
    for line in lines:
        if document and _BOUNDARY.match(line):
            yield document
            document = []
        document.append(line)
    yield document


def _list_head_lines(document: Sequence[str]) -> Iterator[str | None]:
    """The first lines, as long as they have only plain fields, comments and a bare separator.

    A line with only a comment is None; other comments are cut off.
    """
    for number, line in enumerate(document):
        separator = _BOUNDARY.fullmatch(line) if number == 0 else None
        plain = _PLAIN.fullmatch(line)
        if plain is not None:
            yield plain[1]
        elif _QUIET.fullmatch(separator[1] if separator is not None else line):
            yield line[:3] if separator is not None else None if line.strip() else ""
        else:
            return


def _can_show_document(head: Sequence[str | None], rest: Sequence[str], *, is_torn: bool = False) -> bool:
    """Whether a document in block style with this head may be shown whole.

    If it ``is_torn``, its data may be that of a secret whose kind comes later.
    """
    plain = (_PLAIN.fullmatch(line) for line in head if line)
    fields = [match.group(2, 3) for match in plain if match is not None]
    kinds = [str(value).strip("\"'") for name, value in fields if name == "kind"]
    doubts = {match[1] for match in map(_DOUBTFUL.match, rest) if match is not None}
    if any(name == "apiVersion" for name, _ in fields):
        return len(kinds) == 1 and "secret" not in kinds[0].lower() and not doubts
    return (
        len(kinds) == 1
        and kinds[0] in _OPEN
        and doubts <= ({"data"} if kinds[0] in _HARMLESS and not is_torn else set())
    )


def _opens_in_flow(document: Sequence[str]) -> bool:
    """Whether a document written as one ``{…}``, or as a list of them, may be shown whole; its kind must come first."""
    text = "\n".join(line for line in document if not _QUIET.fullmatch(line)).removeprefix("---").lstrip()
    if text.startswith("["):
        if not _opens_as_list(text):
            return False
    elif (begun := _FLOW.match(text)) is None or begun[3] not in _OPEN:
        return False
    return all(name == "kind" and value in _OPEN for _, name, value in _KEYS.findall(text))


class _Kind(msgspec.Struct):
    """The field that says what an object is."""

    kind: str = ""


def _opens_as_list(text: str) -> bool:
    """Whether a list in JSON has objects of open kinds only; not one with faults, where others could be behind them."""
    if "\\" in text:  # an escape could write the kind of a secret
        return False
    try:
        return all(kind.kind in _OPEN for kind in msgspec.json.decode(text, type=list[_Kind]))
    except (msgspec.DecodeError, RecursionError):
        return False
