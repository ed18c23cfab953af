"""Corrections of texts that do not fit their field."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from reconciler.documents.scalars import former_boolean
from reconciler.documents.schema.dialect import SchemaValidator, compile_pattern

LONGEST = 60
"""Characters of a text that may be corrected; a longer one is no typing error."""

_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([a-zA-Z]*)", re.ASCII)
_IN_MEBIBYTES = {
    "": 1,
    "m": 1,
    "mb": 1,
    "mi": 1,
    "mib": 1,
    "g": 1024,
    "gb": 1024,
    "gi": 1024,
    "gib": 1024,
    "t": 1024**2,
    "tb": 1024**2,
    "ti": 1024**2,
    "k": 1 / 1024,
    "kb": 1 / 1024,
    "ki": 1 / 1024,
}
_MEBIBYTE = 1 << 20
_CONTAINERS = {"array": "write a list", "object": "write a mapping"}
_EVERYWHERE = frozenset({"*", "all", "any", "0.0.0.0"})
"""What people write for "all addresses"."""


def suggest_fix(text: str, schema: dict[str, Any]) -> str:
    """``text`` after one small change that makes it match the pattern of ``schema``; "" if none does.

    It has no character that a terminal does not show, such as a tab.
    """
    if len(text) > LONGEST:
        return ""
    pattern = compile_pattern(schema.get("pattern", ""))
    check = SchemaValidator(schema)
    guesses = filter(str.isprintable, _list_guesses(text, schema))
    return next((guess for guess in guesses if pattern.search(guess) and check.is_valid(guess)), "")


def suggest_spelling(text: str, schema: dict[str, Any]) -> str:
    """How to write ``text``, a word or number that readers take differently, according to ``schema``.

    Empty if the schema does not decide. Numbers are not quoted, since they may be secret.
    """
    kind, meant = schema.get("type"), former_boolean(text)
    if kind == "string":
        if not SchemaValidator(schema).is_valid(text):
            allowed = [f"`{value}`" for value in schema.get("enum", ())]
            if allowed:
                return f"write one of {', '.join(allowed)}" if len(allowed) > 1 else ""
            return f"write {schema.get('x-pattern-words', 'another text')}"
        return "put it in quotes" if meant is None else f'write "{text}" in quotes'
    if kind == "boolean":
        return "write true or false" if meant is None else f"write {str(meant).lower()}"
    if kind in ("integer", "number"):
        return "write the number in plain decimal" if meant is None else "write a number"
    return _CONTAINERS.get(kind, "") if isinstance(kind, str) else ""


def _list_guesses(text: str, schema: dict[str, Any]) -> Iterator[str]:
    """Likely meanings, the smallest change first; ``pattern`` shows which form of text fits."""
    pattern = schema.get("pattern", "")
    bare = text.strip()
    path = bare.strip("/")
    if schema.get("x-image"):
        yield from _guess_images(bare)
        return
    yield from (bare, bare.lower())
    yield from _guess_amounts(bare, pattern)
    if not path:
        return
    yield from (f"//{kind}/{path}" for kind in schema.get("x-link", ()))
    if bare.startswith("/"):
        yield path.rpartition("/")[2]
    if "://" in bare or "\\*\\." in pattern:
        yield re.split("[/:]", bare.partition("://")[2] or bare, maxsplit=1)[0]
    if bare.lower() in _EVERYWHERE:
        yield "0.0.0.0/0"
    if pattern.startswith("^/"):
        yield f"/{path}"
    if "//" in pattern or "|/)/" in pattern:
        yield f"//{path}"
    if "_" in pattern and "/" not in pattern:
        yield bare.replace(" ", "_")
    if pattern.startswith("^[a-z]"):
        yield re.sub("[^a-z0-9]+", "-", bare.lower()).strip("-")


def _guess_images(bare: str) -> Iterator[str]:
    """An image without the scheme of an address, its repository in lower case; a tag stays unchanged."""
    image = bare.partition("://")[2] or bare
    start = image.rfind("/") + 1
    name, colon, tag = image[start:].partition(":")
    yield image
    yield f"/{image}"
    yield f"{image[:start].lower()}{name.lower()}{colon}{tag}"


def _guess_amounts(bare: str, pattern: str) -> Iterator[str]:
    """A number with a unit in the units that fields take: 0.5 as 500m, 128M as 128Mi, 7 days as 7d."""
    match = _AMOUNT.fullmatch(bare)
    if match is None:
        return
    number, unit = match[1], match[2].lower()
    if unit:
        yield f"{number}{unit[:1]}"
    if "m?" in pattern and unit in ("", "c", "core", "cores", "cpu", "cpus", "vcpu"):
        yield f"{math.ceil(float(number) * 1000)}m"
    size = float(number) * _IN_MEBIBYTES.get(unit, 0)
    if "Mi" in pattern and size:
        size /= _MEBIBYTE if unit == "" and size >= _MEBIBYTE else 1
        yield f"{math.ceil(size / 1024)}Gi" if size % 1024 == 0 else f"{math.ceil(size)}Mi"
