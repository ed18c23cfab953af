"""Changes of resources: each becomes a commit, after the whole tree that would result was checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call, read_as
from reconciler.api.documents import resource_document
from reconciler.api.idempotency import earlier_answer
from reconciler.api.problems import Problem
from reconciler.api.routes.admission import (
    admission_in_git,
    admit_change,
    admit_deletion,
    admit_domain,
    check_name,
    manifest_from,
    new_name,
)
from reconciler.api.routes.agents import issue_bootstrap
from reconciler.api.table import Handler, Operation
from reconciler.changes.requests import (
    ChangeRequest,
    Document,
    EarlierChange,
    ManifestPatch,
    ResourceEdit,
    SeenManifest,
)
from reconciler.daemon.wake import wake_daemon
from reconciler.errors import NotFoundError, SourceNotFound
from reconciler.manifests.links import full_form
from reconciler.model.key import Key, Kind
from reconciler.model.kinds.table import MANAGE, TABLE
from reconciler.model.platform import BUILT_IN_RESOURCES, PROTECTED_TAG
from reconciler.model.revision import COMMIT_OR_PARENT
from reconciler.planning.plan import Plan
from reconciler.queries.existence import find_source
from reconciler.settings import SourceSettings

if TYPE_CHECKING:  # what only writes need takes 15 MB: the first write loads it
    from reconciler.changes.restoring import ManifestRollback
    from reconciler.changes.write import CheckedChange

_TAG = re.compile(r'"([0-9a-f]{32})-[0-9a-f]{24}"')
"""The entity tag of a resource: it begins with the digest of the manifest."""
_REVISION = re.compile(r"[0-9a-f]{40}$")
"""The commit at the end of a revision."""


class Declaration(NamedTuple):
    """A resource, and where it is declared; the org and the built-in groups may be ``new`` there."""

    key: Key
    source: SourceSettings
    path: str
    new: bool = False


class RollbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The commit whose manifest comes back ("": the version before the applied one), and why.

    ``digest`` is that of the plan that the caller saw, "" for any.
    """

    revision: str = ""
    reason: str = ""
    digest: str = ""


async def create_resource(call: Call) -> Response:
    """Create a resource: a file of its own in the source."""
    from reconciler.changes.edits import choose_path

    body = await call.body()
    kind = call.kind()
    gvc = call.request.path_params.get("gvc")
    if gvc is not None:
        check_name(gvc)
    key = Key(kind, gvc or "", new_name(body))
    manifest = manifest_from(key, body)
    call.require("create", key, lambda: manifest)
    entry = call.reader.records.desired.get(str(key))
    if entry is not None or call.reader.records.applied.exists(key):
        raise Problem(409, f"{key} exists already")
    admit_change(call, key, {}, manifest)
    source = await find_source_for(call, key)
    edit = ResourceEdit(
        key, choose_path(key), None, manifest, admit=admission_in_git(call, key, manifest, creates=True)
    )
    link, subject = full_form(key, call.org), f"Create {key}"
    if kind is Kind.DOMAIN:
        # Its record takes the longest, and is asked for last.
        await write_edits(call, source, [edit], subject, dry=True)
        await admit_domain(call, key.name)
    return await _carry_out(call, source, [edit], subject, 201, {"Location": link})


async def put_resource(call: Call) -> Response:
    """Replace a resource, in its own file; what stays equal stays as it is written."""
    key, source, path, new = await _find_declaration(call, "edit")
    body = await call.body()
    if not isinstance(body, dict):
        raise Problem(400, "the body is a manifest")
    was, manifest = meaning_of(call, key), manifest_from(key, body)
    admit_change(call, key, was, manifest)
    edit = ResourceEdit(key, path, None if new else was, manifest, admit=admission_in_git(call, key, manifest))
    if call.request.headers.get("if-match", "").strip() == "*":
        edit = edit._replace(patch=lambda _: manifest)
    elif not new:
        edit = edit._replace(seen=_read_seen_manifest(call, body))
    return await _carry_out(call, source, [edit], f"Update {key}", 200)


async def patch_resource(call: Call) -> Response:
    """Change fields of a resource by a JSON merge patch."""
    key, source, path, new = await _find_declaration(call, "edit")
    patch = await call.body()
    if not isinstance(patch, dict):
        raise Problem(400, "the body is a merge patch: an object with the fields to change")
    was, change = meaning_of(call, key), ManifestPatch(key, patch, partial(manifest_from, key))
    admit_change(call, key, was, manifest := change.apply(was))
    edit = ResourceEdit(
        key,
        path,
        None if new else was,
        manifest,
        change.patches_data,
        None if new else change.apply,
        seen=_parse_if_match(call),
        admit=admission_in_git(call, key, manifest),
    )
    return await _carry_out(call, source, [edit], f"Update {key}", 200)


async def delete_resource(call: Call) -> Response:
    """Delete a resource; a GVC together with its content."""
    # Kinds such as auditctx have no permission of that name.
    key, source, path, _ = await _find_declaration(call, deletion_permission(call.kind()))
    edits = build_deletions(call, key, source, path)
    edits[0] = edits[0]._replace(was=meaning_of(call, key), seen=_parse_if_match(call))
    return await _carry_out(call, source, edits, f"Delete {key}", 202)


def deletion_permission(kind: Kind) -> str:
    """The permission to delete a resource of ``kind``: kinds such as auditctx have none of that name."""
    return "delete" if "delete" in TABLE[kind].permissions else MANAGE


def build_deletions(call: Call, key: Key, source: SourceSettings, path: str) -> list[ResourceEdit]:
    """The edits that delete ``key``, of a GVC with its content. Raises Problem 400 and 403."""
    admit_deletion(call, key)
    edits = [ResourceEdit(key, path, {}, None)]
    if key.kind is Kind.GVC:
        edits += _build_member_deletions(call, key, source)
    for edit in edits:
        if (meaning_of(call, edit.key).get("tags") or {}).get(PROTECTED_TAG) == "true":
            raise Problem(400, f"{edit.key} is protected: remove its tag {PROTECTED_TAG} first")
    return edits


def _read_seen_manifest(call: Call, body: Mapping[str, Any]) -> SeenManifest | None:
    """What the client of a PUT saw: by If-Match, by the revision in its body, else what it wrote last."""
    from reconciler.changes.commits import make_author

    if "if-match" in call.request.headers:
        return _parse_if_match(call)
    status = body.get("status")
    revision = _REVISION.search(str(status.get("revision"))) if isinstance(status, Mapping) else None
    if revision is not None:
        return SeenManifest(commit=revision[0])
    return SeenManifest(author=make_author(call.caller.principal, call.org).email)


def _parse_if_match(call: Call) -> SeenManifest | None:
    """What the client saw by its header If-Match; None without one, or with ``*``, which any manifest matches."""
    tags = call.request.headers.get("if-match", "*").strip()
    if tags == "*":
        return None
    match = _TAG.fullmatch(tags.removeprefix("W/"))
    if match is None:
        raise Problem(400, "If-Match is the ETag of one read of this resource, or *")
    return SeenManifest(digest=match[1])


def _build_member_deletions(call: Call, gvc: Key, source: SourceSettings) -> list[ResourceEdit]:
    """The deletion of everything in ``gvc``; volume sets need the force flag.

    A newer commit may have deleted some of them. If it added others, the check of the tree refuses the deletion.
    """
    records = call.reader.records
    members = [Key.parse(key) for key in records.applied.keys_of_gvc(gvc.name)]
    volumesets = [key for key in members if key.kind is Kind.VOLUMESET]
    if volumesets and not call.flag("force"):
        shown = ", ".join(str(key) for key in volumesets[:5] if call.may("view", key)) or "hidden ones"
        raise Problem(400, f"{gvc} has volume sets ({shown}): add ?force=true")
    for key in members:
        if not call.may("delete", key):
            name = str(key) if call.may("view", key) else "a member that you may not view"
            raise Problem(403, f"{call.caller.principal} has no permission `delete` on {name} of {gvc}")
    entries = records.desired.get_many(map(str, members))
    if foreign := [key for key, entry in entries.items() if entry.source != source.name]:
        raise Problem(400, f"another source declares members of {gvc}: {', '.join(foreign[:5])}")
    return [ResourceEdit(Key.parse(key), entry.path, {}, None, if_present=True) for key, entry in entries.items()]


async def _find_declaration(call: Call, permission: str) -> Declaration:
    """The resource in the path, which the caller has ``permission`` on.

    The org and the built-in groups exist without a manifest: they get one.
    """
    call.require(permission, call.key())
    is_built_in = str(call.key()) in BUILT_IN_RESOURCES
    # The members of a built-in group are the org's own.
    if is_built_in and (call.kind() is not Kind.GROUP or call.request.method == "DELETE"):
        raise Problem(400, f"{call.key()} is built in: it cannot be changed or deleted")
    if is_built_in:
        # A member of it has rights that no policy shows, so to edit groups is too little.
        call.require(MANAGE, call.key())
    key = call.key() if is_built_in else call.existing(permission)
    entry = call.reader.records.desired.get(str(key))
    if entry is None and (key.kind is Kind.ORG or is_built_in):
        from reconciler.changes.edits import choose_path

        return Declaration(key, await find_source_for(call, key), choose_path(key), new=True)
    if entry is None:
        raise NotFoundError(f"{key} is no longer in Git; it is to be deleted")
    return Declaration(key, find_source(call.api.settings, entry.source), entry.path)


async def find_source_for(call: Call, key: Key) -> SourceSettings:
    """The source for a new resource: the one of the parameter ``source``, that of its GVC, or the only one."""
    sources = call.api.settings.sources
    if name := call.query("source"):
        return find_source(call.api.settings, name)
    # Whether the GVC exists is checked with all other links.
    if len(sources) == 1:
        return sources[0]
    if key.gvc:
        gvc = Key(Kind.GVC, "", key.gvc)
        recorded = call.reader.records.desired.get(str(gvc))
        if recorded is not None:
            return find_source(call.api.settings, recorded.source)
        if source_settings := await call.in_git(lambda: call.api.writers.find_declaring_source(gvc)):
            return source_settings
    raise Problem(400, f"add ?source=NAME: {', '.join(source.name for source in sources)}")


def meaning_of(call: Call, key: Key) -> dict[str, Any]:
    """The manifest of ``key`` as readers see it."""
    from reconciler.changes.commits import make_manifest

    return make_manifest(key, call.recorded_body(key))


async def _carry_out(
    call: Call,
    source: SourceSettings,
    edits: list[ResourceEdit],
    subject: str,
    status: int,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Make the commit of ``edits``, or show it for a dry run."""
    from reconciler.api.commits import visible_change

    dry = call.flag("dryRun") is True
    key, sees = edits[0].key, make_view_check(call, edits)
    # Clients wait for another revision than this one, and the daemon may apply the change at once.
    before = _get_current_document(call, key) if sees(key) else {}
    records = call.reader.records.applied.get(key)
    digest = records[0].digest if records else ""
    change = await write_edits(call, source, edits, subject, dry=dry)
    if isinstance(change, EarlierChange):
        return earlier_answer(call, change)
    if change is None:
        return call.respond({**before, "change": None}, status, manifest=digest if before else "")
    shown = visible_change(change, sees, dry=dry)
    if not all(sees(edit.key) for edit in edits):
        shown["diff"] = ""
    document = before | _select_visible_fields(key, change.edits[0].wanted) | {"change": shown}
    if not dry:
        wake_daemon(call.api.settings.state, source.name, "ref")
        if status == HTTPStatus.CREATED and key.kind is Kind.AGENT:
            document |= issue_bootstrap(call, key.name)
    written = change.planned.loaded.change_set.added.get(str(key))
    tagged = written.digest if written is not None and sees(key) else ""
    return call.respond(document, 200 if dry else status, dict(headers or {}), tagged)


def make_view_check(call: Call, edits: Sequence[ResourceEdit]) -> Callable[[Key], bool]:
    """Whether the caller may view a resource, or writes it in ``edits``.

    Who may delete or create a resource need not see it, or others that the plan is about.
    """
    from reconciler.api.visibility import sees_everything

    if all(call.visibility(kind).everything for kind in Kind):
        return sees_everything
    written = {edit.key for edit in edits if edit.wanted is not None}
    return cache(lambda key: key in written or call.may("view", key))


async def write_edits(
    call: Call, source: SourceSettings, edits: Sequence[ResourceEdit], subject: str, *, dry: bool, digest: str = ""
) -> CheckedChange | EarlierChange | None:
    """Make the commit of ``edits``; None if there is nothing to change. Raises Problem."""
    from reconciler.api.commits import submit_change

    if call.api.writes == "refuse":
        raise Problem(403, "the settings refuse changes through the API: make them in Git")
    principal = call.caller.principal
    request = ChangeRequest(call.change_id, principal, subject, tuple(edits), call.is_repeated, dry, digest)
    return await submit_change(call, source, request, make_view_check(call, edits))


def _get_current_document(call: Call, key: Key) -> dict[str, Any]:
    """The document of ``key`` as applied now; {} if it is not applied yet."""
    applied = call.reader.records.applied
    # The daemon may delete it between two reads: it sees the commit of this change.
    records, created = applied.get(key), applied.created_at(key)
    if created is None or not records:
        return {}
    return resource_document(call.reader.facts().facts(key, records=records), created, call.org)


def _select_visible_fields(key: Key, manifest: Document | None) -> dict[str, Any]:
    """The fields that the change writes, without the data of a secret."""
    return {name: value for name, value in (manifest or {}).items() if key.kind is not Kind.SECRET or name != "data"}


async def roll_back_resource(call: Call) -> Response:
    """Roll a resource back to a version: a commit restores its manifest, once the whole tree was checked."""
    call.require("edit", call.key())
    asked, dry = read_as(await call.body(optional=True), RollbackRequest), call.flag("dryRun") is True
    rollback, change = await try_rollback(call, asked, dry=dry)
    if isinstance(change, EarlierChange):
        return earlier_answer(call, change)
    key, short = rollback.edit.key, rollback.revision.commit[:12]
    if change is None:
        return call.respond({"message": f"{key} is as in {short} already", "change": None})
    from reconciler.api.commits import visible_change
    from reconciler.render.plan.summary import format_summary

    shown = visible_change(change, make_view_check(call, [rollback.edit]), dry=dry)
    plan = select_own_steps(change, key)
    if dry:
        message = f"{key} would be as in {short} again: {format_summary(plan)}"
    else:
        wake_daemon(call.api.settings.state, plan.source, "ref")
        message = f"{key} is as in {short} again, by the commit {change.commit.id[:12]} on {change.branch}"
        message += f"; open a review: {change.review}" if change.review else ""
    return call.respond({"message": message, "change": shown})


async def try_rollback(
    call: Call, asked: RollbackRequest, *, dry: bool
) -> tuple[ManifestRollback, CheckedChange | EarlierChange | None]:
    """Roll back the resource in the path as ``asked``, or only check that if ``dry``; None for no difference.

    Raises Problem, RefusedError and SourceError.
    """
    from reconciler.changes.restoring import write_message

    declaration = await _find_declaration(call, "edit")
    key, source = declaration.key, declaration.source
    # Another caller wrote what comes back.
    call.require("view", key)
    _check_expression(call, asked.revision)
    rollback = await call.in_git(lambda: call.with_reader(lambda: _make_rollback(call, declaration, asked.revision)))
    manifest = rollback.edit.wanted
    assert manifest is not None
    admit_change(call, key, meaning_of(call, key), manifest)
    edit = rollback.edit._replace(admit=admission_in_git(call, key, manifest))
    subject = write_message(rollback, asked.reason)
    return rollback, await write_edits(call, source, [edit], subject, dry=dry, digest=asked.digest)


def _check_expression(call: Call, expression: str) -> None:
    """Raise Problem 403 where ``expression`` names a branch, which only who may view the org knows of."""
    org = Key(Kind.ORG, "", call.org)
    if expression and not COMMIT_OR_PARENT.fullmatch(expression) and not call.may("view", org):
        raise Problem(403, f"{call.caller.principal} has no permission `view` on {org}, so name the commit by its id")


def _make_rollback(call: Call, declaration: Declaration, expression: str) -> ManifestRollback:
    from reconciler.changes.restoring import choose_version, explain_way_in_git, make_rollback

    key, source, path = declaration.key, declaration.source, declaration.path
    if declaration.new:
        raise Problem(409, f"{key} has no manifest in Git, and so no earlier version")
    try:
        chosen = choose_version(call.api.settings, call.reader.records, key, expression)
        if call.api.writes == "refuse":
            way = explain_way_in_git(source, path, chosen)
            words = f"the settings refuse changes through the API; in a work tree: {way}, then commit and push"
            raise Problem(403, words)
        with call.api.writers.borrow(source) as writer:
            return make_rollback(writer, key, path, chosen)
    except SourceNotFound as error:
        raise Problem(404, str(error)) from None


def select_own_steps(change: CheckedChange, key: Key) -> Plan:
    """The plan of ``change`` with the steps of ``key`` alone: others wait in it for reasons of their own."""
    plan = change.planned.plan
    assert plan is not None
    return msgspec.structs.replace(plan, steps=tuple(step for step in plan.steps if step.key == key))


_COLLECTIONS = ("/org/{org}/{kind}", "/org/{org}/gvc/{gvc}/{kind}")
_ANSWERS: dict[int, str] = {200: "What was written.", 400: "Findings.", 409: "Changed meanwhile."}
_CREATED, _DELETED = {**_ANSWERS, 201: "Created."}, {**_ANSWERS, 202: "Deleted in Git; the daemon deletes it next."}


def _make_operation(
    method: str, path: str, change: Handler, summary: str, permission: str, *parameters: str
) -> Operation:
    """A change, which may be repeated with its key."""
    return Operation(method, path, change, summary, permission, _ANSWERS, parameters, changes=True, idempotent=True)


_OF_RESOURCES = tuple(
    operation
    for path in _COLLECTIONS
    for operation in (
        _make_operation("POST", path, create_resource, "Create a resource.", "create", "dryRun", "source")._replace(
            answers=_CREATED
        ),
        _make_operation("PUT", f"{path}/{{name}}", put_resource, "Replace a resource.", "edit", "dryRun"),
        _make_operation("PATCH", f"{path}/{{name}}", patch_resource, "Change fields of a resource.", "edit", "dryRun"),
        _make_operation(
            "DELETE", f"{path}/{{name}}", delete_resource, "Delete a resource.", "delete", "dryRun", "force"
        )._replace(answers=_DELETED),
    )
)
_OF_VERSIONS = tuple(
    Operation(
        "POST",
        f"{path}/{{name}}/-rollback",
        roll_back_resource,
        "Roll a resource back to a version of its manifest.",
        "edit",
        {200: "What was written.", 400: "Findings.", 409: "The state of the target refuses it."},
        ("dryRun",),
        body=RollbackRequest,
        optional_body=True,
        changes=True,
        idempotent=True,
    )
    for path in _COLLECTIONS
)
OPERATIONS = (
    _make_operation("PUT", "/org/{org}", put_resource, "Replace the manifest of the org.", "edit", "dryRun", "source"),
    _make_operation("PATCH", "/org/{org}", patch_resource, "Change fields of the org.", "edit", "dryRun", "source"),
    *_OF_RESOURCES,
    *_OF_VERSIONS,
)
