"""Values of a document with their paths; each value read counts as seen, so that the rest can be noted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from reconciler.convert.notes import ConversionNote, is_faulty
from reconciler.model.finding import Pointer

_TYPES = {dict: "a mapping", list: "a list", str: "text", int: "a whole number", bool: "true or false"}


class ResourceNotes:
    """One resource in a document: its place, the values seen, and the notes.

    ``carried`` are labels that become tags, or that tie resources together and so have done their work.
    """

    def __init__(self, path: str, index: int) -> None:
        self.path = path
        self.index = index
        self.seen: set[Pointer] = set()
        self.whole: set[Pointer] = set()
        self.carried: set[Pointer] = set()
        self.remarks: list[ConversionNote] = []

    @property
    def is_faulty(self) -> bool:
        """Whether any value read from it is malformed."""
        return any(map(is_faulty, self.remarks))


class TrackedValue:
    """A value of a resource and its path; a part of a missing value is empty, and false.

    A value of the wrong type gets a note ``convert-malformed`` and counts as empty.
    """

    __slots__ = ("at", "sheet", "value")

    def __init__(self, sheet: ResourceNotes, at: Pointer, value: Any) -> None:
        self.sheet = sheet
        self.at = at
        self.value = value

    def __bool__(self) -> bool:
        return self.value is not None

    def __getitem__(self, name: str) -> Self:
        """The field ``name``, empty where it is not set."""
        at = (*self.at, name)
        members = self._as(dict) or {}
        if name in members:
            self.sheet.seen.add(at)
        return type(self)(self.sheet, at, members.get(name))

    def peek(self, name: str) -> Any:
        """The value of the field ``name`` without counting it as seen, None where there is none."""
        return self.value.get(name) if isinstance(self.value, dict) else None

    def fields(self) -> Iterator[tuple[str, Self]]:
        """Name and value of every field."""
        for name in self._as(dict) or {}:
            yield name, self[name]

    def items(self) -> list[Self]:
        """The entries of a list."""
        parts = [type(self)(self.sheet, (*self.at, index), item) for index, item in enumerate(self._as(list) or ())]
        self.sheet.seen.update(part.at for part in parts)
        return parts

    def text(self, default: str = "") -> str:
        """The text, ``default`` where it is not set."""
        value = self._as(str)
        return default if value is None else str(value)

    def number(self) -> int | None:
        """The whole number, None where it is not set."""
        value = self._as(int)
        return None if value is None else int(value)

    def flag(self) -> bool:
        """Whether it is true; false where it is not set."""
        return bool(self._as(bool))

    def amount(self) -> str:
        """A quantity, a number or a text, as text; "" where it is not set."""
        if isinstance(self.value, int | float) and not isinstance(self.value, bool):
            return f"{self.value:f}".rstrip("0").rstrip(".") if isinstance(self.value, float) else str(self.value)
        return self.text()

    def texts(self) -> list[str]:
        """The texts of a list."""
        return [item.text() for item in self.items()]

    def mapping(self) -> dict[str, str]:
        """A mapping of text to text."""
        return {name: part.text() for name, part in self.fields()}

    def require_text(self) -> str:
        """The text, which must be set and not empty."""
        if not self:
            self.add_note("convert-malformed", f"the field `{self.at[-1]}` is missing")
        elif self.value == "":
            self.add_note("convert-malformed", f"the field `{self.at[-1]}` is empty")
        return self.text()

    def ignore(self) -> None:
        """Count it as seen, with everything in it."""
        self.sheet.whole.add(self.at)

    def add_note(self, rule: str, message: str, suggestion: str = "", on_key: bool = False) -> None:
        """Add a note to this value."""
        self.sheet.remarks.append(
            ConversionNote(rule, self.sheet.path, self.sheet.index, self.at, message, suggestion, on_key)
        )

    def _as(self, expected: type) -> Any:
        value = self.value
        if value is None or type(value) is expected:
            return value
        name = self.at[-1] if self.at else "the document"
        shown = f"entry {name} of `{_get_field_name(self.at)}`" if isinstance(name, int) else f"`{name}`"
        self.ignore()
        self.add_note("convert-malformed", f"{shown} is not {_TYPES[expected]}")
        return None


def _get_field_name(at: Pointer) -> str | int:
    return next((step for step in reversed(at) if isinstance(step, str)), "document")
