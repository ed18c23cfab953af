"""A secret that must not be revealed, and whether a place makes it one."""

from __future__ import annotations

import random
import zlib
from typing import Any

from reconciler.documents.reader import parse_documents

CANARY = "cAnArY7f3q"
"""Stands wherever a seed has a secret's value."""


def planted(document: Any) -> Any:
    """``document`` with the canary in every value of a secret's data."""
    if isinstance(document, dict) and document.get("kind") == "secret" and "data" in document:
        return {**document, "data": _filled(document["data"])}
    return document


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _filled(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_filled(item) for item in value]
    return f"{value[: len(value) // 2]}{CANARY}{value[len(value) // 2 :]}" if isinstance(value, str) else CANARY


def is_only_secret(raw: bytes) -> bool:
    """Whether the canary stands in the data of secrets and nowhere else, in a file without faults of writing."""
    count = raw.count(CANARY.encode())
    if not count:
        return False
    reading = parse_documents(raw)
    if reading.faults:
        return False
    secret = [each.value["data"] for each in reading.documents if _is_secret(each.value)]
    return sum(map(_count, secret)) == count


def _is_secret(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind") == "secret" and "data" in value


def _count(value: Any) -> int:
    """How often the canary stands in values below ``value``; keys are no secret."""
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    if isinstance(value, list):
        return sum(map(_count, value))
    return value.count(CANARY) if isinstance(value, str) else 0


def broken(raw: bytes) -> bytes:
    """``raw`` with one of the faults that people make when they write."""
    chance = random.Random(zlib.crc32(raw))
    lines = raw.split(b"\n")
    at = chance.randrange(len(lines))
    line = lines[at]
    if chance.random() < 0.2:
        return raw[: chance.randrange(len(raw))]
    if CANARY.encode() not in line:
        forms = [b"", b"  " + line, line.lstrip(), line.replace(b"secret", b"secrte"), line.replace(b":", b"")]
        lines[at] = chance.choice([*forms, b"\t" + line, line + b" : [", line + b'"', b"- " + line, b"#" + line])
    else:
        lines.insert(at, chance.choice([b"%", b"  : [", b"}", b"\tx: y", b'"', b"? ", b"- -", b"&", b"x: |"]))
    return b"\n".join(lines)
