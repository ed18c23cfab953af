"""A directory with one file, in memory: checked as `reconciler validate` does it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from reconciler.manifests import crossing
from reconciler.manifests.assembly import assemble
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.normal import Dialect
from reconciler.model.finding import Finding
from reconciler.model.revision import FileChange
from reconciler.pipeline.decoding import Blobs, Cache, decode_all
from reconciler.pipeline.view import Surroundings, View
from reconciler.records.store import Records

PATH = "shop/all.yaml"
DIALECT = Dialect("acme", secret_key=b"k" * 32)
AROUND = Surroundings(external=frozenset({"gvc/shop", "gvc/ops"}), unknown=True)


@cache
def _records() -> Records:
    """Records that nothing is ever written to."""
    return Records.open(None)


def checked(raw: bytes) -> list[Finding]:
    """Everything that is found in the file."""
    blobs = Blobs(lambda _: len(raw), lambda _: raw)
    view = View("", _records(), blobs, DIALECT, AROUND)
    nothing = Cache(lambda _: {}, lambda _: None)

    def decoded(wanted: Iterable[FileChange]) -> Iterator[tuple[FileChange, Decoded]]:
        return decode_all(list(wanted), blobs, nothing, DIALECT)

    delta = assemble("", [FileChange(PATH, "", "blob")], decoded, _records().desired)
    view.overlay(delta)
    return sorted([*delta.findings, *crossing.check(delta, view)])


def shown(findings: list[Finding], raw: bytes) -> str:
    """The findings in every form in which people and programs get them."""
    from reconciler.cli.excerpt import Excerpts
    from reconciler.cli.findings import findings_text, markdown_findings

    return findings_text(findings, Excerpts(lambda _: raw)) + markdown_findings(findings, "Refused")
