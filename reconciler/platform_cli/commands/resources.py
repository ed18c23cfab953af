"""What every kind of resource has: get, query, edit, patch, tag, update, clone, delete, and its reports."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from reconciler.documents.editing.patches import assign_fields, make_patch
from reconciler.errors import ReconcilerError, RefusedError, UsageError
from reconciler.input_files import read_files
from reconciler.platform_cli.documents import read_documents, read_object
from reconciler.platform_cli.option_values import parse_pairs
from reconciler.platform_cli.output import Columns, make_advice_getter, make_field_getter, slim_manifest
from reconciler.platform_cli.refusals import UNUSABLE, ApiError
from reconciler.platform_cli.session import Session
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.terminal.editor import INTERRUPTED, run_editor


def columns_of(session: Session, kind: str) -> Columns:
    """The columns of a listing of ``kind``."""
    own = {heading: make_field_getter(path) for heading, path in KINDS[kind].columns.items()}
    modified = make_field_getter("lastModified")
    return {
        "NAME": make_field_getter("name"),
        **own,
        "VERSION": make_field_getter("version"),
        "LAST MODIFIED": lambda item: session.output.time(str(modified(item) or "")),
        "DESCRIPTION": make_field_getter("description"),
    }


def get(session: Session, kind: str, ref: tuple[str, ...]) -> None:
    """List the resources of ``kind``, or show those with the names or links ``ref``."""
    columns = columns_of(session, kind)
    if kind == "org" and not ref:
        ref = (session.org,)
    if len(ref) == 1:
        session.output.document(read_resource(session, kind, ref[0]), columns)
    elif ref:
        _get_several(session, kind, ref, columns)
    else:
        show_list(session, kind)


def _get_several(session: Session, kind: str, refs: tuple[str, ...], columns: Columns) -> None:
    """Print those of ``refs`` that exist. Raises ApiError for the last one that does not."""
    resources, errors = [], []
    for ref in refs:
        try:
            resources.append(read_resource(session, kind, ref))
        except ApiError as error:
            if error.status in UNUSABLE:
                raise
            errors.append(error)
    if resources:
        session.output.documents([resources], columns, kind)
    _raise_last(session, errors)


def _raise_last(session: Session, errors: Sequence[ApiError]) -> None:
    """Show all ``errors`` but the last one, which is raised. Raises ApiError."""
    for shown in errors[:-1]:
        session.output.error(str(shown), shown.status)
    if errors:
        raise errors[-1]


def show_list(session: Session, kind: str, query: Mapping[str, Any] | None = None) -> None:
    """Print the resources of ``kind``, or those that ``query`` finds; a note follows a list that was cut."""
    path = session.path(kind) + ("" if query is None else "/-query")
    # One more than wanted is asked for: it shows whether others follow.
    most, shown = session.max, 0

    def pages() -> Any:
        nonlocal shown
        if session.output.chooses:
            # The limit is of what is chosen.
            chosen = [*chain.from_iterable(session.output.choose(session.client.items(path, 0, query)))]
            shown = len(chosen)
            yield chosen[:most] if most else chosen
            return
        for page in session.client.items(path, most + 1 if most else 0, query):
            shown += len(page)
            yield page[: len(page) - 1] if most and shown > most else page

    session.output.documents(pages(), columns_of(session, kind), kind)
    if most and shown > most:
        session.output.note(f"the first {most}; --max 0 shows all")


def query(
    session: Session, kind: str, match: str, property_: tuple[str, ...], tag: tuple[str, ...], rel: tuple[str, ...]
) -> None:
    """List the resources of ``kind`` that a query finds."""
    show_list(session, kind, {"kind": kind, "spec": query_spec(session.org, match, property_, tag, rel)})


def query_spec(
    org: str, match: str, properties: tuple[str, ...], tags: tuple[str, ...], relations: tuple[str, ...]
) -> dict[str, Any]:
    """The conditions of a query; a property, tag or relation without a value only has to exist.

    The links of documents are full, so that of a relation becomes one.
    """
    terms = []
    for subject, texts in (("property", properties), ("tag", tags), ("rel", relations)):
        for text in texts:
            name, equals, value = text.partition("=")
            if subject == "rel" and value.startswith("//"):
                value = f"/org/{org}/{value[2:]}"
            terms.append({subject: name, "op": "=", "value": value} if equals else {subject: name, "op": "exists"})
    return {"match": match, "terms": terms}


def edit(session: Session, kind: str, ref: str, replace: bool) -> None:
    """Open a manifest in the editor of this user, and merge or replace what it has become."""
    import tempfile

    from reconciler.documents.writer import render_document

    editor = _get_editor(session)
    answer = session.client.request("GET", session.path(kind, ref))
    before = slim_manifest(answer.body)
    descriptor, name = tempfile.mkstemp(prefix=f"{kind}-", suffix=".yaml")
    text = render_document(before)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    try:
        _open_editor(editor, name)
        after = read_object(name)
        if after == before:
            session.output.note("nothing was changed")
        elif replace:
            replace_resource(session, kind, ref, after, seen=answer.headers.get("etag", ""))
        else:
            patch_with(session, kind, ref, make_patch(before, after))
    except ReconcilerError as error:
        if not _has_changed(name, text):
            raise
        if isinstance(error, ApiError):
            [source] = read_documents(read_files([name]))
            error = error.within(source, resource_key(kind, str(before.get("gvc") or ""), str(before["name"])))
        again = f"platform apply --file {name}" if replace else f"platform {kind} patch {ref} --file {name}"
        raise RefusedError(f"{error}\nThe text is still in {name}. Correct it there, then: {again}") from None
    except KeyboardInterrupt:
        if _has_changed(name, text):
            session.output.note(f"nothing was changed; the text is still in {name}")
        raise
    Path(name).unlink()


def _has_changed(path: str, text: str) -> bool:
    """Whether a person has changed the file that had ``text``; it is removed otherwise."""
    changed = Path(path).read_text(encoding="utf-8") != text
    if not changed:
        Path(path).unlink()
    return changed


def _get_editor(session: Session) -> str:
    """The editor of this user. Raises UsageError without one."""
    editor = session.environ.get("VISUAL") or session.environ.get("EDITOR") or ("vi" if sys.stdout.isatty() else "")
    if not editor:
        raise UsageError("there is no terminal for an editor: set EDITOR, or use patch --file")
    return editor


def _open_editor(editor: str, path: str) -> None:
    """Let a person change a file. Raises UsageError, RefusedError and KeyboardInterrupt if that fails."""
    try:
        code = run_editor(shlex.split(editor), Path(path))
    except (OSError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UsageError(f"the editor {editor!r} cannot be started: {reason}; set EDITOR") from None
    if code in INTERRUPTED:
        raise KeyboardInterrupt
    if code:
        raise RefusedError(f"the editor {editor!r} ended with {code}, so nothing was changed")


def patch(session: Session, kind: str, ref: str, file: str) -> None:
    """Merge an object from a file into a resource."""
    from reconciler.documents.recognition import MANIFESTS, Recogniser

    patch_with(session, kind, ref, slim_manifest(read_object(file, Recogniser(MANIFESTS, "platform"))))


def tag(session: Session, kind: str, ref: tuple[str, ...], tag: tuple[str, ...], remove: tuple[str, ...]) -> None:
    """Attach, replace and remove tags."""
    change: dict[str, Any] = {**dict.fromkeys(remove), **parse_pairs(tag, "--tag")}
    if not change:
        raise UsageError("name a tag: --tag KEY=VALUE or --remove KEY")
    for text in ref:
        patch_with(session, kind, text, {"tags": change})


def update(session: Session, kind: str, ref: str, set_: tuple[str, ...]) -> None:
    """Set single properties."""
    before = slim_manifest(read_resource(session, kind, ref))
    try:
        change = make_patch(before, assign_fields(before, set_))
    except UsageError as error:
        raise UsageError(f"--set {error}") from None
    if change:
        patch_with(session, kind, ref, change)
    else:
        session.output.note("nothing was changed")


def clone(session: Session, kind: str, ref: str, name: str, description: str | None, tag: tuple[str, ...]) -> None:
    """Create a resource with the fields of another, without its description and tags."""
    source = slim_manifest(read_resource(session, kind, ref))
    fields = {key: value for key, value in source.items() if key not in ("name", "description", "tags")}
    text = f"{name} (clone of {source['name']})" if description is None else description
    create_resource(session, kind, {**fields, "name": name, "description": text, **tags_of(tag)})


def delete(session: Session, kind: str, ref: tuple[str, ...], force: bool = False) -> None:
    """Delete resources. One that fails does not hold back the others. Raises ApiError.

    Only a person at a terminal is told of success. With ``force``, what waits for an approval is approved where this
    caller may.
    """
    if force:
        session.use_approval()
    query = {"force": "true"} if force else {}
    errors = []
    for text in ref:
        try:
            delete_at(session, session.path(kind, text), **query)
        except ApiError as error:
            if error.status in UNUSABLE:
                raise
            # The server names its parameter, which is an option here.
            errors.append(ApiError(str(error).replace("?force=true", "--force"), error.status))
    _raise_last(session, errors)


def delete_at(session: Session, path: str, **query: str) -> None:
    """Delete the resource at ``path``, and say so to a person; the word for what is reviewed first is said already."""
    reviews = session.reviews
    session.change("DELETE", path, **query)
    if session.reviews == reviews:
        kind, name = unquote(path).split("/")[-2:]
        session.output.show_person(f"{kind} {name} deleted")


def eventlog(session: Session, kind: str, ref: str) -> None:
    """Show the events of a resource."""
    answer = session.client.get(f"{session.path(kind, ref)}/-eventlog", last=str(session.max or 1000))
    columns = {
        "TIME": lambda item: session.output.time(str(item.get("at", ""))),
        "TYPE": make_field_getter("type"),
        "REASON": make_field_getter("reason"),
        "MESSAGE": make_advice_getter("message"),
    }
    session.output.documents([answer["items"]], columns, "event")


def show_report(session: Session, kind: str, ref: str) -> None:
    """Show what a resource reports of itself."""
    session.output.value(session.client.get(f"{session.path(kind, ref)}/-info"))


def permissions(session: Session, kind: str) -> None:
    """List the permissions of ``kind``, and those that each implies."""
    path = f"/org/{session.org}" if kind == "org" else f"/org/{session.org}/{kind}"
    answer = session.client.get(f"{path}/-schema/permissions")
    items = [{**value, "implies": answer["implied"].get(value["name"], [])} for value in answer["items"]]
    columns = {
        "PERMISSION": make_field_getter("name"),
        "DESCRIPTION": make_field_getter("description"),
        "IMPLIES": make_field_getter("implies"),
    }
    session.output.documents([items], columns, "permission")


def access_report(session: Session, kind: str, ref: str) -> None:
    """Show who has which permission on a resource."""
    answer = session.client.get(f"{session.path(kind, ref)}/-accessreport")
    if not session.output.is_text:
        session.output.value(answer)
        return
    rows = [
        {"permission": value["name"], "principal": binding["principalLink"], "granted": binding["grantedPermissions"]}
        for value in answer["permissions"]
        for binding in value["bindings"]
    ]
    columns = {
        "PERMISSION": make_field_getter("permission"),
        "PRINCIPAL": _make_text_getter("principal"),
        "GRANTED": make_field_getter("granted"),
    }
    session.output.documents([rows], columns, "permission")


def _make_text_getter(name: str) -> Any:
    return lambda item: str(item[name])


def read_resource(session: Session, kind: str, ref: str) -> dict[str, Any]:
    """A resource as the server shows it. Raises ApiError."""
    resource: dict[str, Any] = session.client.get(session.path(kind, ref))
    return resource


def create_resource(session: Session, kind: str, manifest: dict[str, Any], *, show: bool = True) -> dict[str, Any]:
    """Create a resource, and print it if ``show``. Raises ApiError."""
    body = session.change("POST", session.path(kind), {"kind": kind, **manifest}).body or {}
    _report_change(session, kind, body, "created", show)
    return dict(body)


def replace_resource(session: Session, kind: str, ref: str, manifest: dict[str, Any], *, seen: str = "") -> None:
    """Replace a resource, as it was with the ETag ``seen``, and print it. Raises ApiError."""
    answer = session.change("PUT", session.path(kind, ref), manifest, seen=seen)
    _report_change(session, kind, answer.body or {}, "replaced")


def patch_with(session: Session, kind: str, ref: str, change: Any) -> None:
    """Merge ``change`` into a resource, and print it. Raises ApiError."""
    _report_change(session, kind, session.change("PATCH", session.path(kind, ref), change).body or {}, "changed")


def _report_change(session: Session, kind: str, body: Mapping[str, Any], done: str, show: bool = True) -> None:
    if not session.output.is_text:
        if show:
            session.output.document(body, {})
        return
    session.output.line(f"{kind} {body.get('name', '')} {done if body.get('change') else 'is unchanged'}")
    if session.verbose and body.get("change"):
        session.output.note(describe_change(body["change"]))


def describe_change(change: Mapping[str, Any]) -> str:
    """The commit and the plan of a change on one line."""
    where = f"commit {change['commit']} on {change['branch']}" if change.get("commit") else f"branch {change['branch']}"
    return f"{where}, plan {change.get('plan', {}).get('digest', '')}"


def resource_key(kind: str, gvc: str, name: str) -> str:
    """``KIND/NAME``, with the GVC in between, as findings name a resource."""
    return "/".join(filter(None, (kind, gvc, name)))


def tags_of(texts: tuple[str, ...]) -> dict[str, Any]:
    """The member ``tags`` of a manifest, from texts ``KEY=VALUE``; none without any."""
    return {"tags": parse_pairs(texts, "--tag")} if texts else {}
