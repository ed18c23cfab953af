"""The ends of the scalars of a file, to underline the one that a finding is about."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from reconciler.documents.event_stream import ENDS, EventStream
from reconciler.documents.events import AliasEvent, ScalarEvent, StreamEndEvent
from reconciler.documents.limits import LIMITS

_NEAR = replace(LIMITS, file_nodes=50_000, document_share=0)
"""Tighter limits: an underline is not worth a long second parse."""

TO_THE_END = 1 << 30
"""The end of a scalar that continues on the next line."""


def spans(raw: bytes) -> dict[tuple[int, int], int]:
    """Line and column where each scalar or alias begins, and the column after its end; as far as it can be parsed.

    All count from 1.
    """
    found: dict[tuple[int, int], int] = {}
    stream = EventStream(raw, _NEAR)
    with suppress(*ENDS):
        while (kind := type(event := stream.next())) is not StreamEndEvent:
            if kind is ScalarEvent or kind is AliasEvent:
                start, end = event.start_mark, event.end_mark
                stop = end.column + 1 if end.line == start.line else TO_THE_END
                found[start.line + 1, start.column + 1] = stop
    return found
