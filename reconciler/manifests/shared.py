"""Equal references and questions of many manifests as one object in memory."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

Part = TypeVar("Part", bound=msgspec.Struct)


class Shared(Generic[Part]):
    """Tuples of structs, each of which exists once, as do their members and the texts in these."""

    def __init__(self) -> None:
        self._tuples: dict[tuple[Part, ...], tuple[Part, ...]] = {}
        self._parts: dict[Part, Part] = {}
        # Not sys.intern: the table of the process would grow and be copied again and again.
        self._texts: dict[str, str] = {}

    def text(self, text: str) -> str:
        """``text``, as the object of the first equal one."""
        return self._texts.setdefault(text, text)

    def parts(self, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """``parts``, as the object of the first equal ones."""
        shared = self._tuples.get(parts)
        if shared is None:
            shared = tuple([self._parts.get(part) or self._add(part) for part in parts])
            self._tuples[shared] = shared
        return shared

    def _add(self, part: Part) -> Part:
        values: tuple[Any, ...] = msgspec.structs.astuple(part)
        shared = type(part)(*[self.text(value) if type(value) is str else value for value in values])
        self._parts[shared] = shared
        return shared
