"""Rolls one manifest back: a change that gives it the text which an earlier commit has."""

from __future__ import annotations

from shlex import quote
from typing import NamedTuple

from reconciler.changes.commits import SourceWriter
from reconciler.changes.edits import find_document
from reconciler.changes.manifests import parse_manifest
from reconciler.changes.requests import DocumentText, ResourceEdit
from reconciler.documents.encoding import is_json_list
from reconciler.errors import NotFoundError, RefusedError
from reconciler.model.key import Key, Kind
from reconciler.model.revision import Revision
from reconciler.printable import escape_text
from reconciler.queries.existence import check_present, find_source
from reconciler.queries.versions import read_versions
from reconciler.records.store import Records
from reconciler.settings import Settings, SourceSettings

MOST_REASON = 500
"""The most characters of a reason in the message of a commit."""


class ManifestRollback(NamedTuple):
    """The edit that rolls a manifest back to ``revision``, and the subject of its commit."""

    edit: ResourceEdit
    revision: Revision
    subject: str


def choose_version(settings: Settings, records: Records, key: Key, expression: str) -> str:
    """The commit to which ``key`` is rolled back: ``expression``, "" for the version before the applied one.

    Raises NotFoundError if there is none, RefusedError with the way in Git if nothing can be written to the source,
    SourceError.
    """
    entry = records.desired.get(key)
    if entry is None:
        check_present(records, key)
        raise NotFoundError(f"{key} is no longer in Git; it comes back with its source: reconciler rollback SOURCE REV")
    source = find_source(settings, entry.source)
    chosen = expression or _find_former_version(settings, records, key)
    if source.read_only or not source.branch:
        what = "is read-only" if source.read_only else "follows no branch"
        way = explain_way_in_git(source, entry.path, chosen)
        raise RefusedError(f"the source {source.name} {what}; in a work tree of it: {way}, then commit and push")
    return chosen


def _find_former_version(settings: Settings, records: Records, key: Key) -> str:
    history = read_versions(settings, records, key)
    for version in history.versions[1:]:
        if not version.removed:
            return version.commit
    more = "" if history.is_whole else f" in the last {history.commits} commits; name an older one"
    raise NotFoundError(f"{key} has no earlier version{more}")


def make_rollback(writer: SourceWriter, key: Key, path: str, expression: str) -> ManifestRollback:
    """The change that rolls ``key`` in the file ``path`` back to what the commit ``expression`` declares.

    ``HEAD`` in it is the applied commit. Comments and format come back too; in a list in JSON, the values. Raises
    RefusedError if it is no commit that the branch has, or does not declare ``key``, or for a secret; SourceError.
    """
    if key.kind is Kind.SECRET:
        raise RefusedError(
            f"a secret is not rolled back by itself, since its old values may be known to others: set {key} with "
            f"`reconciler secret edit`, or roll back its source"
        )
    tip = writer.tip()
    revision = _find_revision(writer, tip, expression)
    old, new = (writer.read(commit, path) for commit in (revision.commit, tip))
    was, former = (writer.meaning(text, key) for text in (new, old))
    short = revision.commit[:12]
    if former is None:
        raise RefusedError(
            f"{short} declares no {key} in {path} that can be read: choose a commit of `reconciler versions {key}`"
        )
    if new is None or was is None:
        raise RefusedError(f"{path} no longer declares {key} so that it can be read: mend it in Git first")
    assert old is not None
    edit = ResourceEdit(key, path, was, former)
    if not any(is_json_list(text.encode()) for text in (old, new)):
        before, after = (find_document(text, key) for text in (new, old))
        assert before is not None
        assert after is not None
        ending = "" if after.text.endswith("\n") else "\n"
        parse_manifest(key, after.text)
        edit = edit._replace(text=DocumentText(before.text, f"{after.text}{ending}"))
    return ManifestRollback(edit, revision, f"Roll {key} back to {short}")


def _find_revision(writer: SourceWriter, tip: str, expression: str) -> Revision:
    # Git would compare a pattern with the message of every commit, and no other thread runs meanwhile.
    if not expression or expression.startswith(":") or "^{/" in expression:
        raise RefusedError(f"{expression[:60]!r} is no commit, branch or tag")
    revision = writer.pipeline.revisions.resolve(expression)
    if not writer.pipeline.source.repository.contains(tip, revision.commit):
        raise RefusedError(f"{revision.commit[:12]} is no commit of the branch {writer.branch}")
    return revision


def write_message(rollback: ManifestRollback, reason: str) -> str:
    """The message of its commit, whose body is ``reason`` in one line."""
    body = escape_text(reason)[:MOST_REASON]
    return f"{rollback.subject}\n\n{body}" if body else rollback.subject


def explain_way_in_git(source: SourceSettings, path: str, revision: str) -> str:
    """How to do by Git, in a work tree, what cannot be written to ``source`` here."""
    below = source.path.strip("/")
    whole = path if below in ("", ".") else f"{below}/{path}"
    return f"git restore --source={quote(revision)} -- {quote(whole)}"
