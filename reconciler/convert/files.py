"""Converts the files that `convert` takes: Kubernetes YAML, deploy.yml of Kamal and quadlets of Podman."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from reconciler.convert.checking import Check, invalid, schema_problems
from reconciler.convert.drafts import Draft, in_order
from reconciler.convert.kamal import convert as kamal
from reconciler.convert.kubernetes.convert import convert as convert_kubernetes
from reconciler.convert.notes import findings
from reconciler.convert.quadlet import convert as quadlet
from reconciler.convert.reader import read_kubernetes
from reconciler.convert.recognition import CONVERTIBLE, Form, Recogniser, form_of
from reconciler.model.finding import Finding, has_errors


class ConvertedFiles(NamedTuple):
    """The manifests in apply order, and what was found, in order of place."""

    drafts: list[Draft]
    findings: list[Finding]


def refuse_others(contents: Mapping[str, bytes], program: str = "reconciler") -> None:
    """Raise RefusedError for the first file that another command takes; a Kustomization among others is left out."""
    taken = CONVERTIBLE if len(contents) == 1 else CONVERTIBLE | {Form.KUSTOMIZATION}
    Recogniser(taken, program).refuse_others(contents)


def convert_files(
    contents: Mapping[str, bytes], gvc: str = "", protocol: str = "", check: Check = schema_problems
) -> ConvertedFiles:
    """Convert all files together, each as what it is; ``check`` finds what is not valid of the result."""
    parts: dict[Form, dict[str, bytes]] = {}
    for path, raw in contents.items():
        form = form_of(path, raw)
        parts.setdefault(form if form in (Form.KAMAL, Form.QUADLET) else Form.KUBERNETES, {})[path] = raw
    drafts: list[Draft] = []
    found: list[Finding] = []
    if kubernetes := parts.get(Form.KUBERNETES):
        sources, faults = read_kubernetes(kubernetes)
        converted = convert_kubernetes(sources, gvc, protocol)
        drafts += converted.drafts
        found += [*faults, *findings(converted.remarks, kubernetes)]
    for path, raw in parts.get(Form.KAMAL, {}).items():
        documents, faults = kamal.read_kamal(path, raw)
        found += faults
        for document in documents[:1]:
            converted = kamal.convert(document, raw, gvc)
            drafts += converted.drafts
            found += findings(converted.remarks, {path: kamal.without_statements(raw)})
    if quadlets := parts.get(Form.QUADLET):
        units, faults = quadlet.read_units(quadlets)
        converted = quadlet.convert(units, quadlets, gvc)
        drafts += converted.drafts
        found += [*faults, *findings(converted.remarks, quadlets)]
    if not has_errors(found):
        places = {path: kamal.without_statements(raw) for path, raw in contents.items()}
        found += findings(invalid(drafts, next(iter(contents)), check), places)
    is_mixed = len(parts) > 1 or len(parts.get(Form.KAMAL, {})) > 1
    return ConvertedFiles(in_order(drafts) if is_mixed else drafts, sorted(found))
