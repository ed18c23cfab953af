"""Files to be converted or imported, as their documents."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reconciler.convert.kubernetes.bundle import Source
from reconciler.documents.reader import read
from reconciler.model.finding import Finding

_MODE = re.compile(rb"((?:\bdefaultMode|\bpath: [^\n,}]{1,40}[,\n] {0,40}mode): )(0[0-7]{3})(?=[ \t\r\n,}]|\Z)")
"""The mode of all files or of the one at a path, as people write it. Kubernetes reads YAML 1.1: it is octal there."""


def read_kubernetes(files: Mapping[str, bytes]) -> tuple[list[Source], list[Finding]]:
    """As ``read_all``, with file modes such as 0400 as the octal numbers that they are there."""
    return read_all({path: _MODE.sub(_decimal, raw) for path, raw in files.items()}, frozenset())


def _decimal(mode: re.Match[bytes]) -> bytes:
    # As long as it was, so that places stay right.
    return b"%s%-4d" % (mode[1], int(mode[2], 8))


def read_all(files: Mapping[str, bytes], text_fields: frozenset[str]) -> tuple[list[Source], list[Finding]]:
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
