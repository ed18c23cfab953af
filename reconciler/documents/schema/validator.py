"""Checks documents against their schema: a quick yes or no, and every fault with its message."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reconciler.documents.positions import Positions
from reconciler.documents.schema.loader import load_schema
from reconciler.documents.types import unreadable_paths
from reconciler.model.finding import Fault, Pointer
from reconciler.model.rule import error_rule

if TYPE_CHECKING:
    from reconciler.documents.schema.dialect import SchemaError

MOST = 100
"""The maximum of reported faults of one document."""


RULES = (
    error_rule(
        "unknown-field",
        "A manifest has only known fields.",
        "An unknown field is mostly a misspelled one; without an error it would silently have no effect.",
        "docs/platform/fields.md#unknown-fields",
    ),
    error_rule(
        "missing-field",
        "Required fields are present.",
        "Such a field has no default: only you know its value.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        "wrong-type",
        "A value has the type of its field.",
        "Text, numbers, true and false, lists and mappings do not replace each other. A value in quotes is text.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        "not-allowed",
        "A value is one of those that its field allows, and not reserved.",
        "Anything else has no meaning to the platform.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        "out-of-bounds",
        "A number, a text, a list or a mapping is neither smaller nor larger than its field allows.",
        "The platform would refuse it later, when it is harder to find.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        "bad-format",
        "A text has the form that its field requires.",
        "Its readers expect exactly that form.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        "exactly-one",
        "Of the fields of one choice, exactly one is set.",
        "With none the choice is missing, with two it is ambiguous.",
        "docs/platform/fields.md#manifests",
    ),
    error_rule(
        "exclusive",
        "Two fields that exclude each other are not set together.",
        "One of them would be silently ignored.",
        "docs/platform/fields.md#manifests",
    ),
)
"""General rules of any field; a field with a rule of its own names it in ``x-rule``."""


class Checker:
    """One schema, compiled once."""

    def __init__(self, name: str) -> None:
        """Compile the schema ``name``. Raises FileNotFoundError if there is none."""
        import jsonschema_rs

        self.schema = load_schema(name)
        self._quick = jsonschema_rs.Draft202012Validator(self.schema)
        self._dialect: Any = None

    def valid(self, value: object) -> bool:
        """Whether ``value`` fits the schema."""
        return bool(self._quick.is_valid(value))

    def breaches(self, value: object, but: Callable[[Pointer], bool] = lambda _: False) -> list[SchemaError]:
        """The breaches by ``value``, at most ``MOST``, without those that ``but`` excludes."""
        from reconciler.documents.schema.dialect import Sparing, list_breaches

        if self._dialect is None:
            self._dialect = Sparing(self.schema)
        return list(islice((breach for breach in list_breaches(self._dialect, value) if not but(breach.path)), MOST))

    def phrase_errors(self, schema_errors: list[SchemaError], places: Positions) -> list[Fault]:
        """Breaches of this schema as faults, sorted by position."""
        from reconciler.documents.schema.messages import to_faults

        return to_faults(schema_errors, self.schema, places)

    def renew_advice(self, faults: list[Fault], value: object, places: Positions) -> list[Fault]:
        """``faults`` in a partial document ``value``, with advice on ambiguous scalars that fits their fields."""
        from reconciler.documents.schema.dialect import schemas_at
        from reconciler.documents.schema.suggestions import suggest_spelling

        advice = {}
        for at in unreadable_paths(value):
            *_, schema = reached = list(schemas_at(self.schema, at))
            text = places.written_text(at)
            if text is not None and len(reached) == len(at) + 1:
                advice[places.value(at)] = suggest_spelling(text, schema)
        return [
            replace(fault, suggestion=advice.get((fault.line, fault.column)) or fault.suggestion)
            if fault.rule == "ambiguous-scalar"
            else fault
            for fault in faults
        ]

    def faults(self, value: object, places: Positions) -> list[Fault]:
        """The faults of ``value``, sorted by position; empty if it is valid."""
        return self.phrase_errors(self.breaches(value), places)


def is_valid(name: str, value: object) -> bool:
    """Whether ``value`` fits the schema ``name``, which lists all fields of a mapping in ``properties``.

    Compiles only what concerns the fields of ``value``: for one document, while ``get_checker`` is for many. Raises
    FileNotFoundError if there is no such schema.
    """
    schema = load_schema(name)
    fields = schema["properties"].keys() & value.keys() if isinstance(value, dict) else schema["properties"].keys()
    return bool(_compile_fields(name, frozenset(fields)).is_valid(value))


@lru_cache(maxsize=8)
def _compile_fields(name: str, fields: frozenset[str]) -> Any:
    """The schema ``name`` with no other than these ``fields``, compiled."""
    import jsonschema_rs

    schema = load_schema(name)
    return jsonschema_rs.Draft202012Validator(
        {**schema, "properties": {field: schema["properties"][field] for field in sorted(fields)}}
    )


@cache
def get_checker(name: str) -> Checker:
    """The cached checker of the schema ``name``. Raises FileNotFoundError if there is none."""
    return Checker(name)
