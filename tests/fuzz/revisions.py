"""Files in memory: checked as `reconciler validate` does it, and from one revision to the next as the daemon does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache

from reconciler.decode.cache import Blobs, Cache
from reconciler.decode.decode import decode_all
from reconciler.manifests import reference_check
from reconciler.manifests.assembly import assemble_changes
from reconciler.manifests.change_set import ChangeSet
from reconciler.manifests.decoder import Decoded
from reconciler.manifests.normalize import ManifestContext
from reconciler.model.finding import Finding, has_errors
from reconciler.model.revision import FileChange
from reconciler.pipeline.desired_bodies import BlobDecoder
from reconciler.pipeline.desired_view import desired_view
from reconciler.pipeline.externals import ExternalResources
from reconciler.records.store import Records
from reconciler.records.tables.desired import DesiredEntry

PATH = "shop/all.yaml"
SOURCE = "main"
DIALECT = ManifestContext("acme", secret_key=b"k" * 32)
AROUND = ExternalResources(external=frozenset({"gvc/shop", "gvc/ops"}), settings_unknown=True)

Files = dict[str, bytes]


class RevisionChecker:
    """What is known of the last good revision, and what is found in the next."""

    def __init__(self) -> None:
        self._records = Records.open(None)
        self._known: dict[str, str] = {}
        self._blobs: Files = {}

    def found(self, files: Files) -> tuple[ChangeSet, list[Finding]]:
        """The difference that ``files`` make to what was accepted last, and everything that is found in it."""
        named = {path: hashlib.blake2b(raw, digest_size=16).hexdigest() for path, raw in files.items()}
        accepted = {blob: self._blobs[blob] for blob in self._known.values()}
        self._blobs = accepted | {named[path]: raw for path, raw in files.items()}
        blobs = Blobs(lambda blob: len(self._blobs[blob]), self._blobs.__getitem__)
        paths = sorted({*self._known, *named})
        changes = [FileChange(path, self._known.get(path, ""), named.get(path, "")) for path in paths]
        nothing = Cache(lambda _: {}, lambda _: None)

        def decoded(wanted: Iterable[FileChange]) -> Iterator[tuple[FileChange, Decoded]]:
            return decode_all(list(wanted), blobs, nothing, DIALECT)

        changed = [change for change in changes if change.before != change.after]
        delta = assemble_changes(SOURCE, changed, decoded, self._records.desired)
        view = desired_view(SOURCE, self._records, AROUND, BlobDecoder(blobs, DIALECT)).with_changes(delta)
        return delta, sorted([*delta.findings, *reference_check.check_references(delta, view)])

    def accept(self, files: Files, delta: ChangeSet) -> None:
        """Make ``files``, which made the difference ``delta``, the last good revision."""
        self._known = {path: hashlib.blake2b(raw, digest_size=16).hexdigest() for path, raw in files.items()}
        entries = [
            DesiredEntry(key, SOURCE, each.path, each.position, each.line, each.blob, each.digest, each.references)
            for key, each in delta.added.items()
        ]
        self._records.desired.replace(SOURCE, delta.list_removed(), entries)

    def forget(self) -> None:
        """Begin anew."""
        self._records.desired.replace(SOURCE, [key for key, _ in self._records.desired.scan()], [])
        self._known, self._blobs = {}, {}


@cache
def _worlds() -> tuple[RevisionChecker, RevisionChecker]:
    """One in which nothing is ever accepted, and one for steps; making them costs more than using them."""
    return RevisionChecker(), RevisionChecker()


def checked(raw: bytes) -> list[Finding]:
    """Everything that is found in a directory with one file."""
    return _worlds()[0].found({PATH: raw})[1]


def stepped(before: Files, after: Files) -> tuple[list[Finding], list[Finding]] | None:
    """What a load finds in ``after`` that knows ``before``, and one that knows nothing.

    None where ``before`` has errors, so that it is never accepted.
    """
    fresh, checker = _worlds()
    checker.forget()
    delta, findings = checker.found(before)
    if has_errors(findings):
        return None
    checker.accept(before, delta)
    return checker.found(after)[1], fresh.found(after)[1]


def shown(findings: list[Finding], raw: bytes) -> str:
    """The findings in every form in which people and programs get them."""
    from reconciler.render.excerpt import Excerpts
    from reconciler.render.findings import findings_text, markdown_findings
    from reconciler.render.forges import workflow_commands
    from reconciler.render.sarif import build_sarif_run

    text = findings_text(findings, Excerpts(lambda _: raw))
    return (
        text
        + markdown_findings(findings, "Refused")
        + workflow_commands(findings)
        + json.dumps(build_sarif_run(findings))
    )
