"""Changes values in the text of JSON: all that keeps its value stays as it is written, and spaces are like others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from reconciler.documents.editing.edits import find_origins
from reconciler.documents.editing.nodes import MappingNode, SequenceNode, TextNode, read_json


class Member(NamedTuple):
    """A member of a list or mapping, between its commas: the space before it, itself, and the space after it."""

    lead: str
    body: str
    trail: str = ""


class MemberLayout(NamedTuple):
    """The space around members: before the first and the others, before a comma, before the closing bracket."""

    first: str
    lead: str
    trail: str
    close: str

    @classmethod
    def of(cls, members: Sequence[Member]) -> MemberLayout:
        """The layout of ``members``, of which there is one at least."""
        first, *others = members
        lead = others[0].lead if others else first.lead if "\n" in first.lead else " "
        return cls(first.lead, lead, first.trail if others else "", members[-1].trail)

    def join_members(self, members: Sequence[Member]) -> str:
        """The text between the brackets with ``members``, one at least."""
        last = len(members) - 1
        return ",".join(
            f"{self.first if index == 0 else self.lead if lead == self.first else lead}{body}"
            f"{self.close if index == last else self.trail if trail == self.close else trail}"
            for index, (lead, body, trail) in enumerate(members)
        )


def split_members(text: str, start: int, end: int, spans: Sequence[tuple[int, int]]) -> list[Member]:
    """The members with ``spans`` between the brackets that are at ``start`` and before ``end``."""
    members, begin = [], start + 1
    for number, (first, last) in enumerate(spans):
        comma = text.index(",", last) if number + 1 < len(spans) else end - 1
        members.append(Member(text[begin:first], text[first:last], text[last:comma]))
        begin = comma + 1
    return members


class JsonEditor:
    """Writes values into ``text``, in its own manner."""

    def __init__(self, text: str, unit: str = "") -> None:
        self._text = text
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._is_ascii = text.isascii() and "\\u" in text
        self.unit = unit or self._find_unit()

    def _find_unit(self) -> str:
        """How much deeper the first line of a member is than the line with its bracket."""
        above = ""
        for line in self._text.split("\n"):
            content = line.lstrip(" \t")
            indent = line[: len(line) - len(content)]
            if len(indent) > len(above) and indent.startswith(above):
                return indent[len(above) :]
            above = indent
        return "  "

    def edit(self, node: TextNode, old: Any, new: Any) -> str:
        """The text of ``node``, whose value is ``old``, with the value ``new``."""
        return self._edit(node, old, new, self._line_start(node))

    def dump(self, value: Any, lead: str) -> str:
        """The text of a new ``value`` that ``lead`` stands before: on several lines if it is on a line of its own."""
        if "\n" not in lead:
            return json.dumps(value, ensure_ascii=self._is_ascii)
        indent = lead.rpartition("\n")[2]
        return json.dumps(value, ensure_ascii=self._is_ascii, indent=self.unit).replace("\n", f"{self._break}{indent}")

    def _line_start(self, node: TextNode) -> str:
        """The lead of a node that is the root: that of its closing bracket."""
        written = self._text[node.start : node.end]
        inside = written[:-1].rstrip(" \t\r\n")
        return written[len(inside) : -1]

    def _edit(self, node: TextNode, old: Any, new: Any, lead: str) -> str:
        if json.dumps(old) == json.dumps(new):
            return self._text[node.start : node.end]
        if (
            isinstance(node, MappingNode)
            and isinstance(old, dict)
            and isinstance(new, dict)
            and old.keys() & new.keys()
        ):
            return self._edited_mapping(node, old, new)
        if isinstance(node, SequenceNode) and isinstance(old, list) and isinstance(new, list):
            return self._edited_list(node, old, new, lead)
        return self.dump(new, lead)

    def _edited_mapping(self, node: MappingNode, old: dict[str, Any], new: dict[str, Any]) -> str:
        entries = node.by_name()
        spans = [(entry.key.start, entry.value.end) for entry in node.entries]
        members = split_members(self._text, node.start, node.end, spans)
        layout, former = MemberLayout.of(members), dict(zip(entries, members, strict=True))
        colon = self._text[node.entries[0].key.end : node.entries[0].value.start]
        written = [
            former[name]._replace(
                body=self._text[key.start : value.start] + self._edit(value, old[name], new[name], layout.lead)
            )
            for name, (key, value) in entries.items()
            if name in new
        ]
        written += [
            Member(layout.lead, f"{self.dump(name, '')}{colon}{self.dump(value, layout.lead)}", layout.trail)
            for name, value in new.items()
            if name not in entries
        ]
        return "{" + layout.join_members(written) + "}"

    def _edited_list(self, node: SequenceNode, old: list[Any], new: list[Any], lead: str) -> str:
        origins = find_origins(old, new)
        if not node.items or all(origin is None for origin in origins):
            return self.dump(new, lead)
        members = split_members(self._text, node.start, node.end, [(item.start, item.end) for item in node.items])
        layout, items = MemberLayout.of(members), []
        for value, origin in zip(new, origins, strict=True):
            if origin is None:
                items.append(Member(layout.lead, self.dump(value, layout.lead), layout.trail))
            else:
                body = self._edit(node.items[origin], old[origin], value, layout.lead)
                items.append(members[origin]._replace(body=body))
        return "[" + layout.join_members(items) + "]"


class JsonDocuments:
    """The documents of a text in JSON: its value, or the items of its list.

    Each keeps its number, from 0, when others change or are removed; they are read once.
    """

    def __init__(self, text: str) -> None:
        """Raises LimitReached if ``text`` is not JSON, or beyond the limits."""
        nodes = read_json(text)
        self._text = text
        self._nodes = dict(enumerate(nodes))
        editor = JsonEditor(text)
        self._unit = editor.unit
        self._editors = dict.fromkeys(self._nodes, editor)
        self._is_list = text.lstrip().startswith("[")
        spans = [(node.start, node.end) for node in nodes]
        self._start = text.find("[") if self._is_list else spans[0][0] - 1
        self._end = text.rindex("]") + 1 if self._is_list else spans[0][1] + 1
        members = split_members(text, self._start, self._end, spans)
        self._layout = MemberLayout.of(members) if members else None
        self._members = dict(enumerate(members))

    def texts(self) -> list[str]:
        """The text of each document."""
        return [member.body for member in self._members.values()]

    def text(self) -> str:
        """The whole text, "" without any document."""
        if self._layout is None or not self._members:
            return ""
        inside = self._layout.join_members([*self._members.values()])
        return self._text[: self._start + 1] + inside + self._text[self._end - 1 :]

    def replace(self, number: int, old: Any, new: Any) -> bool:
        """Write document ``number``, whose value is ``old``, with the value ``new``; whether that changes the text."""
        body = self._editors[number].edit(self._nodes[number], old, new)
        is_changed = body != self._members[number].body
        if is_changed:
            # Its values are at other places now, in a text of its own.
            self._editors[number], [self._nodes[number]] = JsonEditor(body, self._unit), read_json(body)
            self._members[number] = self._members[number]._replace(body=body)
        return is_changed

    def remove(self, number: int) -> None:
        """Remove document ``number``."""
        del self._members[number]
