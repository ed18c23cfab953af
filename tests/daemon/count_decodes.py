"""`reconciler` that counts how often the body of the workload web is decoded; the count is the last line on stderr.

The decoders of msgspec count, so the program begins with them, before anything of the reconciler makes one.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

_Decoder = msgspec.json.Decoder
_decode = msgspec.json.decode
_count = [0]


def _note(raw: object) -> None:
    text = bytes(raw) if isinstance(raw, (bytes, bytearray, memoryview)) else str(raw).encode()
    _count[0] += b'"kind":"workload"' in text and b'"name":"web"' in text


class CountingDecoder:
    """A decoder of msgspec."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._decoder = _Decoder(*arguments, **options)

    def decode(self, raw: bytes | str) -> Any:
        """The content of ``raw``."""
        _note(raw)
        return self._decoder.decode(raw)


def decode(raw: bytes | str, **options: Any) -> Any:
    """The content of ``raw``."""
    _note(raw)
    return _decode(raw, **options)


if __name__ == "__main__":
    msgspec.json.Decoder = CountingDecoder  # type: ignore[assignment,misc]
    msgspec.json.decode = decode  # type: ignore[assignment]
    from reconciler.cli import main

    try:
        main()
    finally:
        print(_count[0], file=sys.stderr)
