"""Changes values in the text of a YAML document: all that keeps its value stays as it is written, comments too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from yaml import YAMLError

from reconciler.documents.editing.nodes import MappingNode, Member, ScalarNode, SequenceNode, TextNode, read_node
from reconciler.documents.fault_sink import LimitReached
from reconciler.documents.writer import Style, render_document, render_scalar, write_lines

_UNSAFE_IN_FLOW = re.compile(r"[,\[\]{}]")
"""What a text cannot have everywhere between brackets, unless it is in quotes."""
_INDENTED_LIST = re.compile(r"^( *)[^\s#-][^\n]*:[ ]*\n\1 +- ", re.MULTILINE)
_PLAIN_LIST = re.compile(r"^( *)[^\s#-][^\n]*:[ ]*\n\1- ", re.MULTILINE)

Read = Callable[[str], Any]
"""From a text to what it means; None if it means nothing."""
Write = Callable[[Any], None]
"""Writes a value as a whole in place of another one."""


class _UnwrittenEditError(Exception):
    """A value that cannot be changed where it is written."""


def edit_text(text: str, old: Mapping[str, Any], new: Mapping[str, Any], read: Read) -> str:
    """``text``, one YAML document in which ``read`` finds ``old``, with the values of ``new`` where those differ.

    New fields come last, and a comment goes only with the field or item right below it. A document with a value that
    cannot be changed in place, such as one that an alias repeats, is written anew as a whole.
    """
    if old == new:
        return text
    has_indented_lists = bool(_INDENTED_LIST.search(text)) or not _PLAIN_LIST.search(text)
    for has_blocks in (True, False):
        try:
            edited = _Editor(text, Style(has_indented_lists, has_blocks)).edit(old, new)
        except (_UnwrittenEditError, LimitReached, YAMLError):
            continue
        # A block before a comment, for one, keeps not every line of another text. In a field of texts, a number reads
        # as text.
        if (after := read(edited)) == new or after == read(render_document(dict(new))):
            return edited
    return render_document(dict(new))


class _Change(NamedTuple):
    """The text from ``start`` to ``end`` becomes ``text``."""

    start: int
    end: int
    text: str = ""


class _Item(NamedTuple):
    """An item of a list in block style: its ``-``, and its lines with the comment right above."""

    node: TextNode
    dash: int
    lines: _Change


class _Member(NamedTuple):
    """A member between brackets, and whether it goes."""

    start: int
    end: int
    is_removed: bool


class _Editor:
    """Collects the changes of one text."""

    def __init__(self, text: str, style: Style) -> None:
        self._text = text
        self._style = style
        self._changes: list[_Change] = []

    def edit(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
        """The text after the change from ``old`` to ``new``. Raises _UnwrittenEditError."""
        root = read_node(self._text)
        if not isinstance(root, MappingNode):
            raise _UnwrittenEditError
        self._edit_mapping(root, old, new, _refuse_value)
        return self._apply_changes(0, len(self._text), self._changes)

    def _apply_changes(self, start: int, end: int, changes: Sequence[_Change]) -> str:
        """The text from ``start`` to ``end`` with ``changes`` in it."""
        pieces = []
        for change in sorted(changes, key=lambda change: change[:2]):
            if change.start < start:  # two changes of the same text
                raise _UnwrittenEditError
            pieces += [self._text[start : change.start], change.text]
            start = change.end
        return "".join([*pieces, self._text[start:end]])

    def _change(self, start: int, end: int, text: str) -> None:
        self._changes.append(_Change(start, end, text))

    def _edit(self, node: TextNode, old: Any, new: Any, write: Write) -> None:
        """Change ``node`` from ``old`` to ``new`` in its parts where it has any, else ``write`` it."""
        if old == new and type(old) is type(new):
            return
        if isinstance(node, MappingNode) and isinstance(old, dict) and isinstance(new, dict):
            self._edit_mapping(node, old, new, write)
        elif isinstance(node, SequenceNode) and isinstance(old, list) and isinstance(new, list):
            self._edit_sequence(node, old, new, write)
        else:
            write(new)

    def _edit_mapping(self, node: MappingNode, old: Mapping[str, Any], new: Mapping[str, Any], write: Write) -> None:
        entries = node.by_name()
        removed = [entry for name, entry in entries.items() if name in old and name not in new]
        added = {name: new[name] for name in new if name not in entries and (name not in old or old[name] != new[name])}
        if len(removed) == len(node.entries):
            write(new)
            return
        for name in entries.keys() & old.keys() & new.keys():
            self._edit(entries[name].value, old[name], new[name], self._entry_writer(node, entries[name]))
        if node.is_flow:
            self._remove_in_flow(_Member(entry.key.start, entry.value.end, entry in removed) for entry in node.entries)
            last = max(entry.value.end for entry in node.entries if entry not in removed)
            self._change(last, last, "".join(f", {_flow_entry(name, value)}" for name, value in added.items()))
            return
        for entry in removed:
            self._remove_entry(node, entry)
        if added:
            self._insert_lines(self._line_end(node.end), self._lines(added, node.entries[0].key.start))

    def _entry_writer(self, node: MappingNode, entry: Member) -> Write:
        """What writes the value of ``entry`` in ``node``."""

        def write(value: Any) -> None:
            key, (start, end) = entry.key, (entry.value.start, entry.value.end)
            lines = self._lines({"": value}, key.start)
            if start < end and entry.value.is_flow and (node.is_flow or len(lines) == 1):
                self._change(start, end, _scalar_like(entry.value, value) or _format_flow(value))
            elif node.is_flow:
                raise _UnwrittenEditError
            else:
                colon = self._text.index(":", key.end) + 1
                self._change(colon, end, "\n".join(lines).partition(":")[2])

        return write

    def _remove_entry(self, node: MappingNode, entry: Member) -> None:
        """Remove the lines of ``entry``; where an item of a list begins with it, the next one takes its place."""
        if self._begins_line(entry.key.start):
            self._change(self._comment_start(entry.key.start), self._line_end(entry.value.end), "")
        elif entry == node.entries[0]:
            self._change(entry.key.start, node.entries[1].key.start, "")
        else:
            raise _UnwrittenEditError

    def _edit_sequence(self, node: SequenceNode, old: list[Any], new: list[Any], write: Write) -> None:
        origins = find_origins(old, new)
        items = None if node.is_flow else self._items(node)
        order = [origin for origin in origins if origin is not None]
        if not order or len(old) != len(node.items) or (items is None and not node.is_flow):
            write(new)
        elif items is not None and order == sorted(order):
            self._edit_items(items, old, new, origins)
        elif items is not None:
            self._reorder(items, old, new, origins)
        elif order == sorted(order) and None not in origins[: len(order)]:
            self._edit_flow(node, old, new, origins)
        else:
            write(new)

    def _edit_flow(self, node: SequenceNode, old: list[Any], new: list[Any], origins: list[int | None]) -> None:
        """Change, remove and append items between brackets."""
        for value, origin in zip(new, origins, strict=True):
            if origin is not None:
                item = node.items[origin]
                self._edit(item, old[origin], value, self._flow_writer(item))
        self._remove_in_flow(
            _Member(item.start, item.end, number not in origins) for number, item in enumerate(node.items)
        )
        last = max(node.items[origin].end for origin in origins if origin is not None)
        added = [value for value, origin in zip(new, origins, strict=True) if origin is None]
        self._change(last, last, "".join(f", {_format_flow(value)}" for value in added))

    def _flow_writer(self, item: TextNode) -> Write:
        """What writes ``item`` between brackets."""
        return lambda value: self._change(item.start, item.end, _scalar_like(item, value) or _format_flow(value))

    def _remove_in_flow(self, members: Iterable[_Member]) -> None:
        """Remove members between brackets, each with a comma; at least one stays."""
        first, end = None, None
        for is_removed, group in groupby(members, key=lambda member: member.is_removed):
            run = [*group]
            if not is_removed:
                if first is not None:
                    self._change(first, run[0].start, "")
                first, end = None, run[-1].end
            elif end is None:
                first = run[0].start
            else:
                self._change(end, run[-1].end, "")

    def _items(self, node: SequenceNode) -> list[_Item] | None:
        """The items of a list in block style; None if not each begins a line."""
        items, end = list[_Item](), self._line_start(node.start)
        dash = re.compile(rf"^ {{{node.start - end}}}-(?=\s|\Z)", re.MULTILINE)
        for item in node.items:
            match = dash.search(self._text, end, max(item.start, node.start + 1))
            if match is None or (not items and match.end() != node.start + 1):
                return None
            dash_position, end = match.end() - 1, item.end
            items.append(
                _Item(
                    item,
                    dash_position,
                    _Change(self._comment_start(dash_position), self._line_end(max(item.end, dash_position))),
                )
            )
        return items

    def _edit_items(self, items: list[_Item], old: list[Any], new: list[Any], origins: list[int | None]) -> None:
        """Change items that stay in their order, remove others, and write new ones between them."""
        position = items[0].lines.start
        for value, origin in zip(new, origins, strict=True):
            if origin is None:
                self._insert_lines(position, self._lines([value], items[0].dash))
            else:
                self._edit(items[origin].node, old[origin], value, self._item_writer(items[origin]))
                position = items[origin].lines.end
        self._changes += [item.lines for number, item in enumerate(items) if number not in origins]

    def _reorder(self, items: list[_Item], old: list[Any], new: list[Any], origins: list[int | None]) -> None:
        """Write items in another order, each as it is written, with what is between it and the one before it."""
        ends = [items[0].lines.start, *(item.lines.end for item in items)]
        texts, others = [], self._changes
        for value, origin in zip(new, origins, strict=True):
            self._changes = []
            if origin is None:
                text = "\n".join(self._lines([value], items[0].dash))
            else:
                self._edit(items[origin].node, old[origin], value, self._item_writer(items[origin]))
                text = self._apply_changes(ends[origin], ends[origin + 1], self._changes)
            texts.append(text.removesuffix("\n"))
        self._changes = others
        self._change(ends[0], ends[-1], "\n".join(texts) + "\n" * self._text[: ends[-1]].endswith("\n"))

    def _item_writer(self, item: _Item) -> Write:
        """What writes ``item``."""

        def write(value: Any) -> None:
            node, lines = item.node, self._lines([value], item.dash)
            if node.is_flow and node.start < node.end and len(lines) == 1:
                self._change(node.start, node.end, _scalar_like(node, value) or _format_flow(value))
            else:
                self._change(item.dash + 1, max(node.end, item.dash + 1), "\n".join(lines).partition("-")[2])

        return write

    def _lines(self, value: dict[str, Any] | list[Any], position: int) -> list[str]:
        """The lines of ``value``, as deep as what is at ``position``."""
        indent = " " * (position - self._line_start(position))
        return [f"{indent}{line}" if line else "" for line in write_lines(value, self._style)]

    def _insert_lines(self, position: int, lines: list[str]) -> None:
        """Insert ``lines`` where a line begins, or at the end of the text."""
        if self._text[:position].endswith("\n"):
            self._change(position, position, "".join(f"{line}\n" for line in lines))
        else:
            self._change(position, position, "".join(f"\n{line}" for line in lines))

    def _line_start(self, position: int) -> int:
        return self._text.rfind("\n", 0, position) + 1

    def _line_end(self, position: int) -> int:
        """Where the line after the one of ``position`` begins; a block with blank lines at its end is there already."""
        if position and self._text[position - 1] == "\n":
            return position
        return self._text.find("\n", position) + 1 or len(self._text)

    def _begins_line(self, position: int) -> bool:
        return not self._text[self._line_start(position) : position].strip(" ")

    def _comment_start(self, position: int) -> int:
        """Where the line of ``position`` begins, or the comment of the same depth right above it."""
        start = self._line_start(position)
        comment = f"{' ' * (position - start)}#"
        while start and self._text.startswith(comment, above := self._line_start(start - 1)):
            start = above
        return start


def _refuse_value(_: Any) -> None:
    raise _UnwrittenEditError


def find_origins(old: list[Any], new: list[Any]) -> list[int | None]:
    """For each item of ``new`` the place of the one in ``old`` that it comes from; None for a new one.

    Items with names, each another one, come from that of the same name. Others are those that are equal at the
    beginning and at the end; as many as are between them come from those.
    """
    names = [_get_item_name(item) for item in new]
    if None not in names and len({*names}) == len(names):
        places = {_get_item_name(item): index for index, item in enumerate(old)}
        return [places.get(name) for name in names]
    shorter = min(len(old), len(new))
    first = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    rest = shorter - first
    last = next((index for index in range(rest) if old[-1 - index] != new[-1 - index]), rest)
    between = len(new) - first - last
    is_same_number = len(old) == len(new)
    middle = [first + number if is_same_number else None for number in range(between)]
    return [*range(first), *middle, *range(len(old) - last, len(old))]


def _get_item_name(item: Any) -> str | None:
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


def _scalar_like(node: TextNode, value: Any) -> str:
    """``value`` in the quotes of ``node``; "" if it has none, or they do not fit."""
    quotes = node.quotes if isinstance(node, ScalarNode) else ""
    if not isinstance(value, str) or not value.isprintable() or quotes not in ('"', "'"):
        return ""
    if quotes == "'":
        return _in_quotes(value)
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _in_quotes(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _format_flow(value: Any) -> str:
    """``value`` on one line, also between brackets."""
    if isinstance(value, dict):
        return "{" + ", ".join(_flow_entry(name, member) for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_flow, value)) + "]"
    if isinstance(value, str):
        text = render_scalar(value)
        return _in_quotes(value) if text == value and _UNSAFE_IN_FLOW.search(value) else text
    return render_document(value).removesuffix("\n")


def _flow_entry(name: str, value: Any) -> str:
    return f"{_format_flow(str(name))}: {_format_flow(value)}"
