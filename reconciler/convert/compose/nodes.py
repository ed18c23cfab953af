"""Values of compose files with their origin, which stays with them when files are merged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reconciler.convert.budget import Budget
from reconciler.convert.compose.interpolation import InterpolationError, interpolate_text
from reconciler.convert.compose.reading import ComposeDocument
from reconciler.convert.notes import ConversionNote
from reconciler.model.finding import Pointer

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that a manifest cannot hold, even escaped."""


class NodeOrigin(NamedTuple):
    """A place in the document at ``position`` of a file; relative paths there begin at the directory ``base``."""

    path: str
    position: int
    at: Pointer
    base: str

    def note(self, rule: str, message: str, suggestion: str = "") -> ConversionNote:
        """A note about this place."""
        return ConversionNote(rule, self.path, self.position, self.at, message, suggestion, on_key=True)

    def make_note_adder(self, notes: list[ConversionNote]) -> Callable[[str, str, str], None]:
        """What adds a note about this place to ``notes``."""
        return lambda *words: notes.append(self.note(*words))


class Node(NamedTuple):
    """A value: a scalar, a mapping of text to nodes, or a list of nodes. ``directive`` is its tag of compose."""

    value: Any
    origin: NodeOrigin
    directive: str = ""

    @property
    def fields(self) -> dict[str, Node]:
        """The fields of a mapping; empty for other values."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def items(self) -> list[Node]:
        """The items of a list; empty for other values."""
        return self.value if isinstance(self.value, list) else []


class Interpolation:
    """The variables of a project, and the notes about those that its files use."""

    def __init__(self, environ: Mapping[str, str], notes: list[ConversionNote], budget: Budget) -> None:
        self.environ = environ
        self.notes = notes
        self.budget = budget
        self._unset: set[str] = set()

    def nodes(self, document: ComposeDocument, base: str) -> Node:
        """``document`` as nodes, with variables replaced; a text that is written wrongly becomes empty, with a note."""
        return self._node(document.value, NodeOrigin(document.path, document.position, (), base), document.directives)

    def with_environ(self, environ: Mapping[str, str]) -> Interpolation:
        """The same with other variables."""
        other = Interpolation(environ, self.notes, self.budget)
        other._unset = self._unset
        return other

    def _node(self, value: Any, origin: NodeOrigin, directives: Mapping[Pointer, str]) -> Node:
        if not self.budget.allows(1, 0, origin.make_note_adder(self.notes)):
            value = None
        elif isinstance(value, dict):
            value = {
                key: self._node(member, origin._replace(at=(*origin.at, key)), directives)
                for key, member in value.items()
            }
        elif isinstance(value, list):
            value = [
                self._node(item, origin._replace(at=(*origin.at, index)), directives)
                for index, item in enumerate(value)
            ]
        elif isinstance(value, str):
            value = self._text(value, origin)
        return Node(value, origin, directives.get(origin.at, ""))

    def _text(self, text: str, origin: NodeOrigin) -> str:
        try:
            interpolated = interpolate_text(text, self.environ)
        except InterpolationError as error:
            self.notes.append(origin.note("compose-variable", str(error)))
            return ""
        if CONTROL.search(interpolated.text):
            self.notes.append(origin.note("compose-variable", "the value of a variable has a control character"))
            return ""
        if not self.budget.allows(0, len(interpolated.text), origin.make_note_adder(self.notes)):
            return ""
        for name in interpolated.unset:
            if name not in self._unset:
                self._unset.add(name)
                self.notes.append(
                    origin.note(
                        "compose-unset",
                        f"the variable {name} is not set, and counts as empty",
                        f"set it in the environment or in .env, or write ${{{name}:-DEFAULT}}",
                    )
                )
        return interpolated.text


class Verbatim(Interpolation):
    """The values of a file of another language, in which no variables are replaced."""

    def __init__(self, notes: list[ConversionNote], budget: Budget) -> None:
        super().__init__({}, notes, budget)

    def _text(self, text: str, origin: NodeOrigin) -> str:
        return text if self.budget.allows(0, len(text), origin.make_note_adder(self.notes)) else ""


def make_node(value: Any, origin: NodeOrigin) -> Node:
    """``value`` as nodes, all of ``origin``; nodes in it stay as they are."""
    if isinstance(value, Node):
        return value
    if isinstance(value, dict):
        return Node({key: make_node(member, origin) for key, member in value.items()}, origin)
    return Node([make_node(item, origin) for item in value] if isinstance(value, list) else value, origin)


def get_plain_value(node: Node) -> Any:
    """The value of ``node`` without origins."""
    if isinstance(node.value, dict):
        return {key: get_plain_value(member) for key, member in node.value.items()}
    if isinstance(node.value, list):
        return [get_plain_value(item) for item in node.value]
    return node.value


def size_of(node: Node) -> tuple[int, int]:
    """How many values ``node`` has, itself included, and how many characters their texts."""
    values, characters = 0, 0
    waiting = [node]
    while waiting:
        child = waiting.pop()
        values += 1
        if isinstance(child.value, str):
            characters += len(child.value)
        waiting += child.fields.values() or child.items
    return values, characters


def collect_origins(node: Node) -> dict[Pointer, NodeOrigin]:
    """The origin of each value of ``node``, by its path in the merged document."""
    by_pointer: dict[Pointer, NodeOrigin] = {}
    waiting: list[tuple[Pointer, Node]] = [((), node)]
    while waiting:
        at, child = waiting.pop()
        by_pointer[at] = child.origin
        steps = child.value.items() if isinstance(child.value, dict) else enumerate(child.items)
        waiting += [((*at, step), member) for step, member in steps]
    return by_pointer
