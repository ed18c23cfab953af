"""Labels from lines: what ``json``, ``logfmt``, ``regexp`` and ``pattern`` make of a line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from reconciler.errors import ParseError
from reconciler.logql.line_filters import as_text

ERROR = "__error__"
"""The label that names what went wrong with a line."""
EXTRACTED = "_extracted"
"""What follows the name of a label that the stream has too."""

_ODD = re.compile(r"[^A-Za-z0-9_]")
_STEP = re.compile(r"""\.?(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|\[(?:"(?P<quoted>[^"]*)"|(?P<index>[0-9]+))\]""")
_PAIR = re.compile(r"""(?P<key>[^\s="]+)(?:=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s"]*)))?""")
_ESCAPE = re.compile(r"\\(.)")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
_CAPTURE = re.compile(r"<([A-Za-z_][A-Za-z0-9_]*)>")

Labels = dict[str, str]
Path = tuple[str | int, ...]


class Extraction(msgspec.Struct, frozen=True):
    """One parser of lines. ``extract`` returns labels of a line, or raises ValueError, which is the error ``failure``.

    Without ``failure``, a line that it cannot read has no labels.
    """

    extract: Callable[[str], Mapping[str, str]]
    failure: str = ""

    def filter_line(self, line: bytes, labels: Labels, stream: Mapping[str, str]) -> bytes | None:
        """Add the labels of ``line`` to ``labels``; returns the line."""
        try:
            fields = self.extract(as_text(line))
        except (ValueError, RecursionError):
            if self.failure:
                labels[ERROR] = self.failure
            return line
        for name, value in fields.items():
            labels[f"{name}{EXTRACTED}" if name in stream else name] = value
        return line


def json_extraction(paths: Mapping[str, Path]) -> Extraction:
    """All scalar fields of a line of JSON, nested ones with ``_`` between the names, or those at ``paths``."""
    return Extraction(lambda line: _json_labels(line, paths), "JSONParserErr")


def logfmt_extraction(names: Mapping[str, Path], *, strict: bool, keep_empty: bool) -> Extraction:
    """The pairs of a line such as ``level=info msg="all is well"``, or those that ``names`` chooses."""

    def extract(line: str) -> Mapping[str, str]:
        fields = dict(_parse_pairs(line, strict=strict))
        if not keep_empty:
            fields = {name: value for name, value in fields.items() if value}
        if not names:
            return {_to_label_name(name): value for name, value in fields.items()}
        return {label: fields.get(str(path[0]), "") for label, path in names.items()}

    return Extraction(extract, "LogfmtParserErr" if strict else "")


def expression_extraction(pattern: re.Pattern[str]) -> Extraction:
    """The named groups of an expression."""

    def extract(line: str) -> Mapping[str, str]:
        match = pattern.search(line)
        return {} if match is None else {name: value or "" for name, value in match.groupdict().items()}

    return Extraction(extract)


def pattern_expression(text: str, *, whole: bool) -> re.Pattern[str]:
    """The expression of a pattern such as ``<ip> - <_> "<method> <_>"``; it is for the ``whole`` line or a part.

    Raises ParseError.
    """
    parts, names, at = list[str](), set[str](), 0
    for match in _CAPTURE.finditer(text):
        if match.start() == at and at:
            raise ParseError("between two captures there has to be a text")
        if match[1] != "_" and match[1] in names:
            raise ParseError(f"the capture <{match[1]}> is there twice")
        names.add(match[1])
        parts += [re.escape(text[at : match.start()]), "(?:.*?)" if match[1] == "_" else f"(?P<{match[1]}>.*?)"]
        at = match.end()
    if not whole and names <= {"_"}:
        raise ParseError("a pattern has at least one capture with a name, such as <level>")
    rest = re.escape(text[at:])
    end = "(?s:.*)" if not whole and text[at:] else r"\Z"
    return re.compile("".join(parts) + rest + ("" if whole else end), re.DOTALL)


def parse_path(text: str) -> Path:
    """Parse ``request.headers["User-Agent"][0]``. Raises ParseError."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ParseError(f"`{text[:40]}` names no field; write such as request.method or tags[0]")
        steps.append(int(match["index"]) if match["index"] is not None else match["name"] or match["quoted"] or "")
        at = match.end()
    if not steps:
        raise ParseError("a field is missing here, such as request.method")
    return tuple(steps)


def _json_labels(line: str, paths: Mapping[str, Path]) -> Mapping[str, str]:
    # Numbers stay as they are written.
    document = json.loads(line, parse_int=str, parse_float=str, parse_constant=str)
    if not isinstance(document, dict):
        raise ValueError("the line is no object")
    if not paths:
        return dict(_list_scalars("", document))
    return {label: _extract_field(line, document, path) for label, path in paths.items()}


def _extract_field(line: str, document: Any, path: Path) -> str:
    """The field at ``path``; an object or a list is its JSON without spaces."""
    value = _get_value_at(document, path)
    return _as_label(_get_value_at(json.loads(line), path) if isinstance(value, dict | list) else value)


def _list_scalars(prefix: str, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        label = f"{prefix}_{name}" if prefix else name
        if isinstance(value, dict):
            yield from _list_scalars(label, value)
        elif not isinstance(value, list):
            yield _to_label_name(label), _as_label(value)


def _get_value_at(document: Any, path: Path) -> Any:
    for step in path:
        if isinstance(step, int):
            document = document[step] if isinstance(document, list) and step < len(document) else None
        else:
            document = document.get(step) if isinstance(document, dict) else None
    return document


def _as_label(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _to_label_name(name: str) -> str:
    """``name`` as the name of a label."""
    plain = _ODD.sub("_", name)
    return f"_{plain}" if plain[:1].isdigit() else plain


def _parse_pairs(line: str, *, strict: bool) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
            continue
        match = _PAIR.match(line, at)
        if match is None:
            if strict:
                raise ValueError(f"no pair begins at {at}")
            at += 1
            continue
        quoted = match["quoted"]
        value = (
            _ESCAPE.sub(lambda escape: _CONTROL.get(escape[1], escape[1]), quoted) if quoted else match["plain"] or ""
        )
        yield match["key"], value
        at = match.end()
