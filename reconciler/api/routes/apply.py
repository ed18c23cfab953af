"""Several manifests and deletes as one change: one check, one plan, one digest, one commit, one review."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call, read_as
from reconciler.api.idempotency import earlier_answer
from reconciler.api.problems import Problem
from reconciler.api.routes.admission import (
    admission_in_git,
    admit_change,
    admit_domain,
    check_name,
    manifest_from,
    new_name,
)
from reconciler.api.routes.changes import (
    build_deletions,
    deletion_permission,
    find_source_for,
    make_view_check,
    meaning_of,
    write_edits,
)
from reconciler.api.table import ANY, Operation
from reconciler.changes.requests import Document, EarlierChange, ResourceEdit
from reconciler.daemon.wake import wake_daemon
from reconciler.manifests.links import LinkError, full_form, parse_link
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.kinds.table import MANAGE
from reconciler.model.platform import BUILT_IN_RESOURCES
from reconciler.queries.existence import find_source
from reconciler.settings import SourceSettings

if TYPE_CHECKING:
    from reconciler.changes.write import CheckedChange

MOST_ITEMS = 1_000
"""The most manifests and deletes of one change."""
MOST_BYTES = 8 << 20
"""Bytes of the longest body."""


class ApplyBody(msgspec.Struct, forbid_unknown_fields=True):
    """Manifests to create or replace, and links to resources to delete."""

    items: list[dict[str, Any]] = []
    delete: list[str] = []


class _Wanted(NamedTuple):
    """What the body wants of ``key``: the manifest ``wanted``, None for a deletion.

    ``source`` and ``path`` are where Git has it, "" for a new one.
    """

    key: Key
    wanted: Document | None
    source: str
    path: str
    is_new: bool


async def apply_resources(call: Call) -> Response:
    """Create, replace and delete resources in one commit."""
    body = read_as(await call.body(), ApplyBody)
    if not 0 < len(body.items) + len(body.delete) <= MOST_ITEMS:
        raise Problem(400, f"a change has 1 to {MOST_ITEMS} manifests and deletes")
    targets = await call.apart(lambda: _read_wanted_resources(call, body))
    missing = [target for target in targets if target.wanted is None and not target.source]
    targets = [target for target in targets if target.wanted is not None or target.source]
    if not targets:
        return call.respond({"kind": "change", "items": _list_item_results(call, missing, None), "change": None})
    source = await _one_source(call, targets)
    edits = await call.apart(lambda: _build_edits(call, targets, source))
    dry, digest = call.flag("dryRun") is True, call.query("digest")
    subject = _format_commit_subject(edits)
    domains = [target.key for target in targets if target.is_new and target.key.kind is Kind.DOMAIN]
    if domains and not dry:
        # Their records take the longest, and are asked for last.
        await write_edits(call, source, edits, subject, dry=True, digest=digest)
    for key in domains:
        await admit_domain(call, key.name)
    change = await write_edits(call, source, edits, subject, dry=dry, digest=digest)
    if isinstance(change, EarlierChange):
        return earlier_answer(call, change)
    if change is not None and not dry:
        call.note_done(", ".join(f"{key} {action}" for key, action in change.actions().items()))
        wake_daemon(call.api.settings.state, source.name, "ref")
    return _build_response(call, [*targets, *missing], edits, change, dry=dry)


def _read_wanted_resources(call: Call, body: ApplyBody) -> list[_Wanted]:
    """What the body wants, each resource once, where the caller may do it. Raises Problem 400 and 403."""
    targets = [_parse_item(call, number, item) for number, item in enumerate(body.items)]
    targets += [_parse_deletion(call, link) for link in body.delete]
    for key, count in Counter(target.key for target in targets).items():
        if count > 1:
            raise Problem(400, f"{key} is in this change {count} times")
    created = {target.key for target in targets if target.is_new}
    for target in targets:
        if target.wanted is not None:
            admit_change(
                call, target.key, {} if target.is_new else meaning_of(call, target.key), target.wanted, created
            )
    return targets


def _parse_item(call: Call, number: int, item: Mapping[str, Any]) -> _Wanted:
    kind = KINDS.get(str(item.get("kind")))
    if kind is None:
        raise Problem(400, f"items[{number}] has no kind that there is: {str(item.get('kind'))[:60]!r}")
    gvc = item.get("gvc") if kind in GVC_SCOPED else ""
    if not isinstance(gvc, str) or (kind in GVC_SCOPED and not gvc):
        raise Problem(400, f"items[{number}]: a {kind} names its `gvc`")
    if gvc:
        check_name(gvc)
    key = Key(kind, gvc, new_name(item))
    if kind is Kind.ORG and key.name != call.org:
        raise Problem(400, f"items[{number}]: this server has the org {call.org} alone")
    manifest = manifest_from(key, item)
    entry = call.reader.records.desired.get(str(key))
    is_built_in = str(key) in BUILT_IN_RESOURCES
    if is_built_in and kind is not Kind.GROUP:
        raise Problem(400, f"{key} is built in: it cannot be changed")
    # Who may only edit groups makes nobody a superuser.
    change = MANAGE if is_built_in else "edit"
    if entry is None and not call.reader.records.applied.exists(key):
        call.require(change if is_built_in or kind is Kind.ORG else "create", key, lambda: manifest)
        return _Wanted(key, manifest, "", "", is_new=True)
    call.require(change, key)
    if entry is None:
        raise Problem(409, f"{key} is no longer in Git and is to be deleted: apply it again after that")
    return _Wanted(key, manifest, entry.source, entry.path, is_new=False)


def _parse_deletion(call: Call, link: str) -> _Wanted:
    try:
        target = parse_link(link, call.org, "").target
    except LinkError as error:
        raise Problem(400, str(error)) from None
    if target.startswith("/"):
        raise Problem(400, f"{link} is in another org")
    key = Key.parse(target)
    call.require(deletion_permission(key.kind), key)
    if target in BUILT_IN_RESOURCES:
        raise Problem(400, f"{key} is built in: it cannot be deleted")
    entry = call.reader.records.desired.get(target)
    return _Wanted(key, None, entry.source if entry else "", entry.path if entry else "", is_new=False)


async def _one_source(call: Call, targets: Sequence[_Wanted]) -> SourceSettings:
    """The source of all resources. Raises Problem 400 if they have several."""
    places: dict[str, Key] = {}
    gvcs = {target.key.name: target for target in targets if target.key.kind is Kind.GVC}
    for target in targets:
        if target.source:
            places.setdefault(target.source, target.key)
    for target in targets:
        # A new member of a new GVC goes where that goes.
        if not target.source and not (places and target.key.gvc in gvcs):
            source = places and not call.query("source") and not target.key.gvc
            name = next(iter(places)) if source else (await find_source_for(call, target.key)).name
            places.setdefault(name, target.key)
    if len(places) > 1:
        parts = ", ".join(f"{key} in {name}" for name, key in places.items())
        raise Problem(400, f"one change is for one source, and these are in several: {parts}; apply them one by one")
    return find_source(call.api.settings, next(iter(places)))


def _build_edits(call: Call, targets: Sequence[_Wanted], source: SourceSettings) -> list[ResourceEdit]:
    """The edits of the files. What is deleted goes first: its file may get another resource."""
    from reconciler.changes.edits import choose_path

    edits: dict[Key, ResourceEdit] = {}
    for target in targets:
        if target.wanted is None:
            for edit in build_deletions(call, target.key, source, target.path):
                edits.setdefault(edit.key, edit._replace(if_present=True))
    for target in targets:
        if target.wanted is not None:
            edit = _build_replacement(call, target, choose_path(target.key) if target.is_new else target.path)
            admit = admission_in_git(call, target.key, target.wanted, creates=target.is_new)
            edit = edit._replace(admit=admit)
            if target.key in edits:
                raise Problem(400, f"{target.key} is deleted with its GVC, and cannot be in the same change")
            edits[target.key] = edit
    return [*edits.values()]


def _build_replacement(call: Call, target: _Wanted, path: str) -> ResourceEdit:
    """The edit that makes the newest commit have ``target``: what it declares replaces what is there."""
    key, manifest = target.key, target.wanted
    assert manifest is not None
    may_edit = not target.is_new or call.may("edit", key, lambda: manifest)

    def replace_document(_: Document) -> Document:
        # A commit that is not applied yet has it.
        if not may_edit:
            raise Problem(409, f"{key} exists already")
        return manifest

    return ResourceEdit(key, path, None if target.is_new else meaning_of(call, key), manifest, patch=replace_document)


def _format_commit_subject(edits: Sequence[ResourceEdit]) -> str:
    """``Apply workload/shop/web and 3 more``."""
    verb = "Delete" if all(edit.wanted is None for edit in edits) else "Apply"
    more = f" and {len(edits) - 1} more" if len(edits) > 1 else ""
    return f"{verb} {edits[0].key}{more}"


def _build_response(
    call: Call, targets: Sequence[_Wanted], edits: Sequence[ResourceEdit], change: CheckedChange | None, *, dry: bool
) -> Response:
    from reconciler.api.commits import visible_change

    shown = None
    if change is not None:
        sees = make_view_check(call, edits)
        shown = visible_change(change, sees, dry=dry)
        if not all(sees(edit.key) for edit in edits):
            shown["diff"] = ""
    return call.respond(
        {"kind": "change", "items": _list_item_results(call, targets, change), "change": shown}, HTTPStatus.OK
    )


def _list_item_results(call: Call, targets: Sequence[_Wanted], change: CheckedChange | None) -> list[dict[str, Any]]:
    """What becomes of each resource that the body names."""
    actions = {} if change is None else change.actions()
    items = []
    for target in targets:
        none = "missing" if target.wanted is None else "unchanged"
        items.append({"link": full_form(target.key, call.org), "action": actions.get(target.key, none)})
    return items


OPERATIONS = (
    Operation(
        "POST",
        "/org/{org}/-apply",
        apply_resources,
        "Create, replace and delete resources in one commit.",
        ANY,
        {200: "What becomes of each resource, and the change.", 400: "Findings.", 409: "Changed meanwhile."},
        ("dryRun", "source", "force", "digest"),
        body=ApplyBody,
        changes=True,
        idempotent=True,
        most_body=MOST_BYTES,
    ),
)
