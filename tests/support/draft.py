"""Adds the draft of an engine to those that there are, as a package below ``reconciler/engines`` would be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from reconciler import engines
from reconciler.documents.schema.loader import load_schema
from reconciler.documents.schema.validator import _compile_fields

FOLDER = Path(__file__).parent / "draft_engines"


@contextmanager
def draft_engine() -> Iterator[None]:
    """The engine ``draft`` exists, and the schema of the settings has its name."""
    location = load_schema("settings")["properties"]["locations"]["additionalProperties"]
    names = location["properties"]["engine"]["enum"]
    with patch.object(engines, "__path__", [*engines.__path__, str(FOLDER)]):
        names.append("draft")
        _compile_fields.cache_clear()  # compiled before, the schema has other names
        try:
            yield
        finally:
            names.remove("draft")
            _compile_fields.cache_clear()
