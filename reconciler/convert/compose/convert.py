"""The conversion of a compose project to manifests (docs/platform/cli.md#stack)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from reconciler.convert.compose.fields import note_unused_fields
from reconciler.convert.compose.nodes import NodeOrigin
from reconciler.convert.compose.project import Project
from reconciler.convert.compose.values import Field
from reconciler.convert.compose.workloads import ComposeServices
from reconciler.convert.drafts import Converted, Draft, DraftPlace, in_order
from reconciler.convert.names import make_valid_name
from reconciler.convert.notes import ConversionNote, is_faulty
from reconciler.convert.tracked_value import ResourceNotes
from reconciler.model.finding import Pointer
from reconciler.model.key import Kind
from reconciler.model.kinds.table import TABLE

_DEFAULT_GVC = "default"


def convert_project(project: Project, gvc: str = "", locations: Sequence[str] = ()) -> Converted:
    """Manifests for the services of ``project``, in the GVC ``gvc``, else in that of the project's name.

    The GVC itself is among them if ``locations`` name where it is. The notes name everything that is not converted,
    and what is malformed, whose conversion is a guess. None has a value of the files.
    """
    sheet = ResourceNotes("", 0)
    root = Field(sheet, (), project.value)
    name = gvc or make_valid_name(root["name"].text() or _DEFAULT_GVC)
    root["include"].ignore()
    services = ComposeServices(root, project, name)
    services.convert()
    services.files.note_unused()
    services.volumes.note_unused()
    drafts = [*services.files.drafts, *services.volumes.drafts, *services.drafts, *services.domains()]
    if not services.drafts and not (project.faults or any(map(is_faulty, [*project.notes, *sheet.remarks]))):
        # Else it is only what follows from the errors.
        root["services"].add_note("convert-malformed", "there is no service to convert")
    if locations:
        links = [f"//location/{location}" for location in locations]
        body = {"kind": "gvc", "name": name, "spec": {"staticPlacement": {"locationLinks": links}}}
        drafts.append(Draft(Kind.GVC, "", name, body))
    else:
        root["services"].add_note(
            "convert-gvc",
            f"this goes to the GVC {name}",
            f"gvc/{name} must exist; --location LOCATION creates it",
            on_key=True,
        )
    root["services"].add_note(
        "convert-default",
        "workloads reach only listed addresses outside the platform",
        "see firewallConfig.external: outboundAllowHostname, outboundAllowCIDR",
        on_key=True,
    )
    root["name"].text()
    note_unused_fields(root)
    placed = [_adapt_wording(_relocate_note(remark, project.origins), project.wording) for remark in sheet.remarks]
    drafts = [msgspec.structs.replace(draft, place=_find_place(draft, project.origins)) for draft in drafts]
    ordered = sorted(in_order(drafts), key=lambda draft: _rank_draft(draft, services.order))
    return Converted(ordered, [*project.notes, *placed])


def _find_place(draft: Draft, origins: Mapping[Pointer, NodeOrigin]) -> DraftPlace:
    """Where that is written which ``draft`` is made of; the beginning of the project where it is unknown."""
    at = draft.place.at if draft.place else ()
    while at not in origins:
        at = at[:-1]
    path, position, own, _ = origins[at]
    return DraftPlace(path, position, own)


def _adapt_wording(note: ConversionNote, wording: Mapping[str, str]) -> ConversionNote:
    """``note`` whose suggestion has the words of the language of its file."""
    suggestion = note.suggestion
    for words, others in wording.items():
        suggestion = suggestion.replace(words, others)
    return msgspec.structs.replace(note, suggestion=suggestion)


def _rank_draft(draft: Draft, order: Mapping[str, int]) -> tuple[int, int]:
    """The place of a kind; workloads are in the order in which they depend on one another."""
    return TABLE[draft.kind].rank, order[draft.name] if draft.kind is Kind.WORKLOAD else -1


def _relocate_note(note: ConversionNote, origins: Mapping[Pointer, NodeOrigin]) -> ConversionNote:
    """``note`` about the merged document at the place where the value is written."""
    at = note.at
    while at not in origins:
        at = at[:-1]
    path, position, own, _ = origins[at]
    return msgspec.structs.replace(note, path=path, index=position, at=own)
