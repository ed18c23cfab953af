"""Reads the documents of files for `convert` and `import`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.convert.kubernetes.bundle import SourceDocument
from reconciler.documents.reader import parse_documents
from reconciler.model.finding import Finding

_MODE = re.compile(rb"((?:\bdefaultMode|\bpath: [^\n,}]{1,40}[,\n] {0,40}mode): )(0[0-7]{3})(?=[ \t\r\n,}]|\Z)")
"""The mode of all files or of the one at a path. Kubernetes reads YAML 1.1, in which 0400 is octal."""


def read_kubernetes(files: Mapping[str, bytes]) -> tuple[list[SourceDocument], list[Finding]]:
    """As ``read_all``, with file modes such as 0400 read as octal numbers."""
    return read_all({path: _MODE.sub(_convert_mode, raw) for path, raw in files.items()}, frozenset())


def _convert_mode(mode: re.Match[bytes]) -> bytes:
    # Of the same length, so that places stay right.
    return b"%s%-4d" % (mode[1], int(mode[2], 8))


def read_all(files: Mapping[str, bytes], text_fields: frozenset[str]) -> tuple[list[SourceDocument], list[Finding]]:
    """Return the documents of ``files`` (path → content) in their order, and findings for unreadable ones.

    ``text_fields`` are top-level mappings in which numbers are read as text.
    """
    sources: list[SourceDocument] = []
    faults: list[Finding] = []
    for path, raw in files.items():
        reading = parse_documents(raw, text_fields=text_fields)
        sources += [SourceDocument(path, document.index, document.value) for document in reading.documents]
        faults += [Finding.at(path, fault) for fault in reading.faults]
    return sources, faults
