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
    deletion_permission,
    deletions,
    find_source_for,
    meaning_of,
    seeing,
    write_edits,
)
from reconciler.api.table import ANY, Operation
from reconciler.changes.requests import Document, EarlierChange, ResourceEdit
from reconciler.daemon.wake import wake
from reconciler.manifests.links import LinkError, full_form, parse_link
from reconciler.model.key import GVC_SCOPED, KINDS, Key, Kind
from reconciler.model.kinds.table import MANAGE
from reconciler.model.platform import BUILT_IN_RESOURCES
from reconciler.queries.existence import find_source
from reconciler.settings import SourceSettings

if TYPE_CHECKING:
    from reconciler.changes.write import Change

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


async def apply(call: Call) -> Response:
    """Create, replace and delete resources in one commit."""
    body = read_as(await call.body(), ApplyBody)
    if not 0 < len(body.items) + len(body.delete) <= MOST_ITEMS:
        raise Problem(400, f"a change has 1 to {MOST_ITEMS} manifests and deletes")
    wanted = await call.apart(lambda: _wanted(call, body))
    missing = [each for each in wanted if each.wanted is None and not each.source]
    wanted = [each for each in wanted if each.wanted is not None or each.source]
    if not wanted:
        return call.respond({"kind": "change", "items": _items(call, missing, None), "change": None})
    source = await _one_source(call, wanted)
    edits = await call.apart(lambda: _edits(call, wanted, source))
    dry, digest = call.flag("dryRun") is True, call.query("digest")
    subject = _subject(edits)
    domains = [each.key for each in wanted if each.is_new and each.key.kind is Kind.DOMAIN]
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
        wake(call.api.settings.state, source.name, "ref")
    return _answer(call, [*wanted, *missing], edits, change, dry=dry)


def _wanted(call: Call, body: ApplyBody) -> list[_Wanted]:
    """What the body wants, each resource once, where the caller may do it. Raises Problem 400 and 403."""
    found = [_item(call, number, item) for number, item in enumerate(body.items)]
    found += [_deletion(call, link) for link in body.delete]
    for key, count in Counter(each.key for each in found).items():
        if count > 1:
            raise Problem(400, f"{key} is in this change {count} times")
    created = {each.key for each in found if each.is_new}
    for each in found:
        if each.wanted is not None:
            admit_change(call, each.key, {} if each.is_new else meaning_of(call, each.key), each.wanted, created)
    return found


def _item(call: Call, number: int, item: Mapping[str, Any]) -> _Wanted:
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
    wanted = manifest_from(key, item)
    entry = call.reader.records.desired.get(str(key))
    is_built_in = str(key) in BUILT_IN_RESOURCES
    if is_built_in and kind is not Kind.GROUP:
        raise Problem(400, f"{key} is built in: it cannot be changed")
    # Who may only edit groups makes nobody a superuser.
    change = MANAGE if is_built_in else "edit"
    if entry is None and not call.reader.records.applied.exists(key):
        call.require(change if is_built_in or kind is Kind.ORG else "create", key, lambda: wanted)
        return _Wanted(key, wanted, "", "", is_new=True)
    call.require(change, key)
    if entry is None:
        raise Problem(409, f"{key} is no longer in Git and is to be deleted: apply it again after that")
    return _Wanted(key, wanted, entry.source, entry.path, is_new=False)


def _deletion(call: Call, link: str) -> _Wanted:
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


async def _one_source(call: Call, wanted: Sequence[_Wanted]) -> SourceSettings:
    """The source of all resources. Raises Problem 400 if they have several."""
    places: dict[str, Key] = {}
    gvcs = {each.key.name: each for each in wanted if each.key.kind is Kind.GVC}
    for each in wanted:
        if each.source:
            places.setdefault(each.source, each.key)
    for each in wanted:
        # A new member of a new GVC goes where that goes.
        if not each.source and not (places and each.key.gvc in gvcs):
            source = places and not call.query("source") and not each.key.gvc
            name = next(iter(places)) if source else (await find_source_for(call, each.key)).name
            places.setdefault(name, each.key)
    if len(places) > 1:
        parts = ", ".join(f"{key} in {name}" for name, key in places.items())
        raise Problem(400, f"one change is for one source, and these are in several: {parts}; apply them one by one")
    return find_source(call.api.settings, next(iter(places)))


def _edits(call: Call, wanted: Sequence[_Wanted], source: SourceSettings) -> list[ResourceEdit]:
    """The edits of the files. What is deleted goes first: its file may get another resource."""
    from reconciler.changes.edits import choose_path

    edits: dict[Key, ResourceEdit] = {}
    for each in wanted:
        if each.wanted is None:
            for edit in deletions(call, each.key, source, each.path):
                edits.setdefault(edit.key, edit._replace(if_present=True))
    for each in wanted:
        if each.wanted is not None:
            edit = _replacement(call, each, choose_path(each.key) if each.is_new else each.path)
            admit = admission_in_git(call, each.key, each.wanted, creates=each.is_new)
            edit = edit._replace(admit=admit)
            if each.key in edits:
                raise Problem(400, f"{each.key} is deleted with its GVC, and cannot be in the same change")
            edits[each.key] = edit
    return [*edits.values()]


def _replacement(call: Call, each: _Wanted, path: str) -> ResourceEdit:
    """The edit that makes the newest commit have ``each``: what it declares replaces what is there."""
    key, wanted = each.key, each.wanted
    assert wanted is not None
    may_edit = not each.is_new or call.may("edit", key, lambda: wanted)

    def replaced(_: Document) -> Document:
        # A commit that is not applied yet has it.
        if not may_edit:
            raise Problem(409, f"{key} exists already")
        return wanted

    return ResourceEdit(key, path, None if each.is_new else meaning_of(call, key), wanted, patch=replaced)


def _subject(edits: Sequence[ResourceEdit]) -> str:
    """``Apply workload/shop/web and 3 more``."""
    verb = "Delete" if all(edit.wanted is None for edit in edits) else "Apply"
    more = f" and {len(edits) - 1} more" if len(edits) > 1 else ""
    return f"{verb} {edits[0].key}{more}"


def _answer(
    call: Call, wanted: Sequence[_Wanted], edits: Sequence[ResourceEdit], change: Change | None, *, dry: bool
) -> Response:
    from reconciler.api.commits import visible_change

    shown = None
    if change is not None:
        sees = seeing(call, edits)
        shown = visible_change(change, sees, dry=dry)
        if not all(sees(edit.key) for edit in edits):
            shown["diff"] = ""
    return call.respond({"kind": "change", "items": _items(call, wanted, change), "change": shown}, HTTPStatus.OK)


def _items(call: Call, wanted: Sequence[_Wanted], change: Change | None) -> list[dict[str, Any]]:
    """What becomes of each resource that the body names."""
    actions = {} if change is None else change.actions()
    found = []
    for each in wanted:
        none = "missing" if each.wanted is None else "unchanged"
        found.append({"link": full_form(each.key, call.org), "action": actions.get(each.key, none)})
    return found


OPERATIONS = (
    Operation(
        "POST",
        "/org/{org}/-apply",
        apply,
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
