"""Documents against their schema: a quick yes or no, and only where it is no, every fault in words."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from reconciler.documents.places import Places
from reconciler.documents.schemas import load_schema
from reconciler.model.finding import Fault

if TYPE_CHECKING:
    from reconciler.documents.dialect import Breach

MOST = 100
"""Faults of one document that are told."""

RULES = {
    "unknown-field": "A field that the schema does not know at this place.",
    "missing-field": "A field that must be there is not.",
    "wrong-type": "A value of another type than the field takes.",
    "not-allowed": "A value that is not among the allowed ones, or is reserved.",
    "out-of-bounds": "A number, text, list or mapping that is too small or too large.",
    "bad-format": "A text that is not written as the field asks.",
    "exactly-one": "Of some fields one must be given, and there is none or more than one.",
    "exclusive": "Two fields that must not be given together.",
}
"""Ids of the rules that a schema can break, with what each means."""


class Checker:
    """One schema, compiled once."""

    def __init__(self, name: str) -> None:
        """Compile the schema ``name``. Raises FileNotFoundError where there is none."""
        import jsonschema_rs

        self.schema = load_schema(name)
        self._quick = jsonschema_rs.Draft202012Validator(self.schema)
        self._dialect: Any = None

    def valid(self, value: object) -> bool:
        """Whether ``value`` fits the schema."""
        return bool(self._quick.is_valid(value))

    def breaches(self, value: object) -> list[Breach]:
        """Every way in which ``value`` does not fit, at most ``MOST``; empty where it fits."""
        from reconciler.documents.dialect import Dialect, breaches

        if self._dialect is None:
            self._dialect = Dialect(self.schema)
        return list(islice(breaches(self._dialect, value), MOST))

    def phrased(self, found: list[Breach], places: Places) -> list[Fault]:
        """Breaches of this schema in words, sorted by place."""
        from reconciler.documents.phrasing import phrased

        return phrased(found, self.schema, places)

    def faults(self, value: object, places: Places) -> list[Fault]:
        """Every way in which ``value`` does not fit, in words, sorted by place; empty where it fits."""
        return self.phrased(self.breaches(value), places)


@cache
def checker(name: str) -> Checker:
    """The checker of the schema ``name``, made once. Raises FileNotFoundError where there is none."""
    return Checker(name)
