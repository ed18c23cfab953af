"""Prints results: as text, JSON, YAML or Terraform, whole or without what the server adds, page by page."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any

import click
import msgspec

from reconciler.model.lists.naming import format_names
from reconciler.platform_cli.advice import with_local_commands
from reconciler.platform_cli.lists.choosing import ListChoice
from reconciler.printable import escape_text, printable_json, printable_lines
from reconciler.terminal.folding import count_columns, fold_text, is_colour_terminal
from reconciler.times import format_short_duration, parse_time

SERVER_OWNED = frozenset(
    {"id", "version", "created", "lastModified", "links", "status", "alias", "origin", "change", "keys"}
)
"""Members that the server adds to a manifest."""
WIDEST = 60
"""The most characters of a cell in text; -o json shows all of them."""

_ALL = ListChoice()
_WORD = re.compile(r"[A-Za-z_][-A-Za-z0-9_]*")
"""A name that Terraform takes without quotes."""

Columns = Mapping[str, Callable[[Mapping[str, Any]], Any]]
"""Heading → what a cell shows of an item."""


class Output:
    """Prints in ``form``; ``times`` is the form of times in text. ``colour`` allows colours on a terminal.

    Of lists it prints the ``choice``, and tables without ``headings`` where those are not wanted.
    """

    def __init__(
        self, form: str, times: str, *, colour: bool, choice: ListChoice = _ALL, headings: bool = True
    ) -> None:
        self.format, _, self._template = form.partition("=")
        self._times = times
        self._colour = colour and is_colour_terminal(sys.stdout)
        self._choice = choice
        self.headings = headings

    @property
    def is_text(self) -> bool:
        """Whether people read it."""
        return self.format in ("text", "wide")

    @property
    def is_json(self) -> bool:
        """Whether it is JSON."""
        return self.format in ("json", "json-slim")

    def documents(self, pages: Iterable[list[Any]], columns: Columns, item_kind: str) -> int:
        """Print the items of a list as they come; returns how many there were."""
        count = 0

        def count_pages() -> Iterator[list[Any]]:
            nonlocal count
            for page in self.choose(pages):
                count += len(page)
                yield page

        if self.is_text:
            self._echo(self.table(count_pages(), columns))
        elif self.format == "name":
            self._echo(format_names(page) for page in count_pages())
        elif self._template:
            self.value({"kind": "list", "itemKind": item_kind, "items": [*chain.from_iterable(count_pages())]})
        elif self.is_json:
            self._echo(_json_list(map(self._slim_item, chain.from_iterable(count_pages())), item_kind))
        elif self.format == "tf":
            self._echo(f"{resource_block(slim_manifest(value))}\n" for value in chain.from_iterable(count_pages()))
        else:
            self._echo(_yaml_stream(map(self._slim_item, chain.from_iterable(count_pages()))))
        return count

    def choose(self, pages: Iterable[list[Any]]) -> Iterable[list[Any]]:
        """What is chosen of ``pages``, in the order that is wanted; all of it where nothing is. Raises UsageError."""
        return self._choice.choose(pages)

    @property
    def chooses(self) -> bool:
        """Whether not all of a list is shown as it comes."""
        return self._choice != ListChoice()

    def document(self, item: Mapping[str, Any], columns: Columns) -> None:
        """Print one item."""
        if self.is_text:
            self._echo(self.table([[item]], columns))
        elif self.format == "tf":
            self._echo([f"{resource_block(slim_manifest(item))}\n"])
        elif self.format == "name":
            self._echo([format_names([item])])
        else:
            self.value(self._slim_item(item))

    def manifests(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Print manifests, in text as YAML."""
        if self.is_text:
            self._echo(_yaml_stream(items))
        else:
            self.documents([[*items]], {}, "manifest")

    def value(self, value: Any) -> None:
        """Print any value, in text as YAML."""
        from reconciler.documents.writer import render_document

        if self._template:
            self._find_values(value)
        elif self.is_json:
            self._echo([_indent_json(value) + "\n"])
        else:
            self._echo([render_document(value)])

    def _find_values(self, value: Any) -> None:
        """Print what the template finds in ``value``; the nearest names on stderr if that is nothing."""
        from reconciler.model.lists.jsonpath import parse_template

        template = parse_template(self._template)
        text = template.render(value)
        self._echo([f"{text}\n" if text and not text.endswith("\n") else text])
        if not text and (reason := template.explain_missing(value)):
            self.note(reason.removesuffix("\n"))

    def server_list(self, read: Callable[[str], str]) -> None:
        """Print a list of which the server makes JSON and YAML; ``read`` returns it in a media type."""
        if self.format.startswith("yaml"):
            self.text(read("application/yaml"))
        elif self.is_json:
            self.text(read("application/json"))
        else:
            document = json.loads(read("application/json"))
            if self.format == "name":
                self._echo([format_names(document["items"])])
            elif self._template:
                self._find_values(document)
            else:
                self.documents([document["items"]], {}, "resource")

    def line(self, text: str) -> None:
        """Print one line of text."""
        click.echo(escape_text(text))

    def text(self, text: str) -> None:
        """Print a text of several lines."""
        self._echo([text])

    def note(self, text: str) -> None:
        """Print a remark that is no result, on stderr; its lines stay lines."""
        click.echo(printable_lines(with_local_commands(text)), err=True)

    def show_person(self, text: str) -> None:
        """Print a remark on stderr for a person at a terminal: a delete is silent to programs."""
        if self.is_text and sys.stderr.isatty():
            self.note(text)

    def error(self, message: str, status: int = 0, findings: Sequence[Mapping[str, Any]] = ()) -> None:
        """Print an error on stderr: JSON where the results are, and a line or more elsewhere."""
        click.echo(error_text(message, self.format, status, findings), err=True)

    def log_line(self, line: Mapping[str, Any]) -> str:
        """Time, stream and text of a line of a log."""
        stream = "/".join(str(line.get(name, "")) for name in ("gvc", "workload", "replica", "container"))
        written = self.time(str(line.get("time", "")))
        return f"{written} {stream}@{line.get('location', '')} | {line.get('line', '')}"

    def aside(self, text: str) -> None:
        """Print a line that others wrote on stderr, as it is."""
        click.echo(escape_text(text), err=True)

    def table(self, pages: Iterable[list[Any]], columns: Columns) -> Iterator[str]:
        """The lines of a table; its columns are as wide as the first page needs, and never narrower later."""
        widths = [len(heading) for heading in columns]
        begun = False
        for page in pages:
            rows = [[self._cell(show(item)) for show in columns.values()] for item in page]
            widths = [max([width, *(len(row[at]) for row in rows)]) for at, width in enumerate(widths)]
            if not begun and self.headings:
                yield self._style_heading(_format_row(list(columns), widths))
            begun = True
            for row in rows:
                yield _format_row(row, widths)

    def time(self, text: str) -> str:
        """A time of the server in the form of ``--ts``."""
        if self._times == "iso":
            return text
        with suppress(ValueError):
            at = parse_time(text)
            if self._times == "age":
                return format_short_duration(max(0.0, time.time() - at))
            return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        return text

    def _cell(self, value: Any) -> str:
        if isinstance(value, list):
            value = ", ".join(_short_link(str(item)) for item in value)
        elif isinstance(value, dict):
            value = ", ".join(f"{name}={item}" for name, item in value.items())
        text = escape_text("" if value is None else str(value))
        return text if len(text) <= WIDEST or self.format == "wide" else f"{text[: WIDEST - 1]}…"

    def _slim_item(self, item: Any) -> Any:
        return slim_manifest(item) if self.format.endswith("-slim") else item

    def _style_heading(self, text: str) -> str:
        return click.style(text.rstrip("\n"), bold=True) + "\n" if self._colour else text

    def _echo(self, texts: Iterable[str]) -> None:
        """Print as it comes; through the pager of this user on a terminal, if it is longer than that."""
        if not sys.stdout.isatty():
            for text in texts:
                sys.stdout.write(text)
            return
        if self.format == "text":
            columns = count_columns(sys.stdout)
            texts = (fold_text(text, columns) for text in texts)
        height, lines, first = shutil.get_terminal_size().lines, 0, list[str]()
        for text in (rest := iter(texts)):
            first.append(text)
            lines += text.count("\n")
            if lines >= height:
                click.echo_via_pager(chain(first, rest), color=self._colour)
                return
        for text in first:
            click.echo(text, nl=False, color=self._colour)


def slim_manifest(item: Any) -> Any:
    """A manifest without what the server adds."""
    if not isinstance(item, dict):
        return item
    return {name: value for name, value in item.items() if name not in SERVER_OWNED}


def error_text(message: str, form: str, status: int = 0, findings: Sequence[Mapping[str, Any]] = ()) -> str:
    """An error as ``form`` shows it; ``status`` is that of the server, 0 without one."""
    text = with_local_commands(message)
    if form not in ("json", "json-slim"):
        return f"error: {printable_lines(text)}"
    members = {"message": text, "status": status or None, "findings": [*findings]}
    return printable_json(json.dumps({"error": members}, ensure_ascii=False))


def make_advice_getter(name: str) -> Callable[[Mapping[str, Any]], str]:
    """The message ``name`` of an item, with the commands that work here."""
    show = make_field_getter(name)
    return lambda item: with_local_commands(str(show(item) or ""))


def make_field_getter(path: str) -> Callable[[Mapping[str, Any]], Any]:
    """The value at a dotted ``path`` of an item; None if there is none."""
    names = path.split(".")

    def find(item: Mapping[str, Any]) -> Any:
        value: Any = item
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return find


def _format_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"


def _short_link(text: str) -> str:
    return text.rpartition("/")[2] if text.startswith("/") else text


def _json_list(items: Iterable[Any], item_kind: str) -> Iterator[str]:
    """A list in JSON as its items come."""
    head = {"kind": "list", "itemKind": item_kind}
    yield json.dumps(head, indent=2)[:-2] + ',\n  "items": ['
    separator = "\n"
    for item in items:
        yield f"{separator}    " + _indent_json(item).replace("\n", "\n    ")
        separator = ",\n"
    yield "\n  ]\n}\n" if separator != "\n" else "]\n}\n"


def _indent_json(value: Any) -> str:
    """JSON on several lines; to indent it, json takes ten times as long."""
    return msgspec.json.format(printable_json(json.dumps(value, ensure_ascii=False)), indent=2)


def _yaml_stream(items: Iterable[Any]) -> Iterator[str]:
    """Each item as a YAML document."""
    from reconciler.documents.writer import render_document

    separator = ""
    for item in items:
        yield separator + render_document(item)
        separator = "---\n"


def resource_block(item: Mapping[str, Any]) -> str:
    """``resource "platform_KIND" "NAME" { … }`` with the members of a manifest as arguments."""
    label = re.sub(r"[^A-Za-z0-9_-]", "_", str(item.get("name", "")))
    label = label if _WORD.fullmatch(label) else f"_{label}"
    lines = [f'resource "platform_{item.get("kind", "")}" "{label}" {{']
    for name, value in item.items():
        if name != "kind":
            lines += _format_argument(name, value, "  ")
    return "\n".join([*lines, "}", ""])


def _format_argument(name: str, value: Any, indent: str) -> Iterator[str]:
    word = name if _WORD.fullmatch(name) else _quote_text(name)
    first, *rest = _format_expression(value, indent)
    yield f"{indent}{word} = {first}"
    yield from rest


def _format_expression(value: Any, indent: str) -> list[str]:
    """The lines of a value; all but the first are indented."""
    if isinstance(value, dict) and value:
        inner = [line for name, member in value.items() for line in _format_argument(str(name), member, f"{indent}  ")]
        return ["{", *inner, f"{indent}}}"]
    if isinstance(value, list) and value:
        lines = []
        for item in value:
            first, *rest = _format_expression(item, f"{indent}  ")
            lines += [f"{indent}  {first}", *rest]
            lines[-1] += ","
        return ["[", *lines, f"{indent}]"]
    if isinstance(value, str):
        return [_quote_text(value)]
    return [json.dumps(value)]


def _quote_text(text: str) -> str:
    """A text in quotes, in which Terraform sees no template."""
    return re.sub(r"([$%])(?=\{)", r"\1\1", printable_json(json.dumps(text, ensure_ascii=False)))
