"""Files to be converted or imported, as their documents."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.convert.kubernetes.bundle import Source
from reconciler.documents.reader import read
from reconciler.model.finding import Finding


def read_all(
    files: Mapping[str, bytes], text_fields: frozenset[str] = frozenset()
) -> tuple[list[Source], list[Finding]]:
    """The documents of ``files`` (path → content) in their order, and the faults of those that cannot be read.

    ``text_fields`` are as for the reader: top-level mappings in which numbers are taken as their text.
    """
    sources: list[Source] = []
    faults: list[Finding] = []
    for path, raw in files.items():
        reading = read(raw, text_fields=text_fields)
        sources += [Source(path, document.index, document.value) for document in reading.documents]
        faults += [Finding.at(path, fault) for fault in reading.faults]
    return sources, faults
