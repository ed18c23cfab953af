"""Converts the files that `convert` takes: Kubernetes YAML, compose files, deploy.yml of Kamal, quadlets of Podman."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from reconciler.convert.checking import Check, check_drafts, schema_problems
from reconciler.convert.compose.project import FileReader, no_file
from reconciler.convert.compose.project_files import convert_compose_files
from reconciler.convert.drafts import Draft, in_order
from reconciler.convert.kamal import convert as kamal
from reconciler.convert.kubernetes.convert import convert_kubernetes_resources as convert_kubernetes
from reconciler.convert.notes import make_findings
from reconciler.convert.quadlet import convert as quadlet
from reconciler.convert.quadlet.units import read_units
from reconciler.convert.reader import read_kubernetes
from reconciler.documents.recognition import CONVERTIBLE, CONVERTIBLE_HERE, Form, Recogniser, form_of
from reconciler.errors import UsageError
from reconciler.model.finding import Finding, has_errors
from reconciler.model.key import Kind

_GVC = re.compile("[a-z]([-a-z0-9]{0,62}[a-z0-9])?")
_STDIN = "stdin"
_DESTINATION = re.compile("[A-Za-z0-9][-_A-Za-z0-9]{0,59}")

_LANGUAGE = {
    Form.COMPOSE: Form.COMPOSE,
    Form.KAMAL: Form.KAMAL,
    Form.QUADLET: Form.QUADLET,
    Form.TIMER: Form.QUADLET,
}
"""Form → the one whose converter takes it; all others are for that of Kubernetes."""


class ConvertedFiles(NamedTuple):
    """The manifests in apply order, and what was found, in order of place."""

    drafts: list[Draft]
    findings: list[Finding]


def refuse_others(contents: Mapping[str, bytes], program: str = "reconciler") -> None:
    """Raise RefusedError for the first file that another command takes; a Kustomization among others is left out."""
    taken = CONVERTIBLE_HERE if program == "reconciler" else CONVERTIBLE
    taken = taken if len(contents) == 1 else taken | {Form.KUSTOMIZATION}
    Recogniser(taken, program).refuse_others(contents)


class ConversionOptions(NamedTuple):
    """What people choose: the GVC of all manifests, the protocol of all ports of Kubernetes, a destination of Kamal.

    ``open_project`` makes a reader of the files below the directory of a project. For compose, ``environ`` has the
    variables, and ``name_directory`` names a project that has no name. ``locations`` are those of GVCs to be written.
    """

    gvc: str = ""
    protocol: str = ""
    destination: str = ""
    open_project: Callable[[str], FileReader] = lambda _: no_file
    environ: Mapping[str, str] = {}
    name_directory: Callable[[str], str] = posixpath.basename
    locations: Sequence[str] = ()

    def check(self) -> None:
        """Raise UsageError for a name that can be none."""
        if self.gvc and not _GVC.fullmatch(self.gvc):
            raise UsageError(f"--gvc {self.gvc}: a name is lower-case letters, digits and hyphens, at most 64")
        if self.destination and not _DESTINATION.fullmatch(self.destination):
            raise UsageError(f"--destination {self.destination}: a name is letters, digits, hyphens and underscores")

    def without_destinations(self, contents: dict[str, bytes]) -> dict[str, bytes]:
        """``contents`` without the destinations beside a deploy.yml. Raises UsageError if one is chosen for nothing."""
        if not self.destination:
            return contents
        forms = {path: form_of(path, raw) for path, raw in contents.items()}
        folders = {posixpath.dirname(path) for path, form in forms.items() if form is Form.KAMAL}
        if not folders:
            raise UsageError("--destination is for a deploy.yml of Kamal, and no FILE is one")
        if forms.get(_STDIN) is Form.KAMAL:
            raise UsageError("standard input has no destination beside it: name the file")
        destinations = {path for path, form in forms.items() if form is Form.DESTINATION}
        beside = {path for path in destinations if posixpath.dirname(path) in folders}
        return {path: raw for path, raw in contents.items() if path not in beside}


def convert_files(
    contents: Mapping[str, bytes], options: ConversionOptions, check: Check = schema_problems
) -> ConvertedFiles:
    """Convert all files together, each as what it is; ``check`` finds what is not valid of the result."""
    parts: dict[Form, dict[str, bytes]] = {}
    for path, raw in contents.items():
        parts.setdefault(_LANGUAGE.get(form_of(path, raw), Form.KUBERNETES), {})[path] = raw
    drafts: list[Draft] = []
    problems: list[Finding] = []
    places: dict[str, bytes] = {**contents}
    for part in _convert_parts(parts, options):
        drafts += part.drafts
        problems += part.findings
        places |= part.contents
    is_mixed = len(parts) > 1 or len(parts.get(Form.KAMAL, {})) > 1
    if options.locations:
        drafts += _make_gvcs(drafts, options.locations)
        problems = [finding for finding in problems if finding.rule != "convert-gvc"]
        is_mixed = True
    if not has_errors(problems):
        problems += make_findings(check_drafts(drafts, next(iter(contents)), check), places)
    return ConvertedFiles(in_order(drafts) if is_mixed else drafts, sorted(problems))


class _Part(NamedTuple):
    """What the files of one project, or of one language, become; ``contents`` are files that were read for it."""

    drafts: list[Draft] = []
    findings: Sequence[Finding] = ()
    contents: Mapping[str, bytes] = {}


def _convert_parts(parts: Mapping[Form, dict[str, bytes]], options: ConversionOptions) -> Iterator[_Part]:
    if kubernetes := parts.get(Form.KUBERNETES):
        sources, faults = read_kubernetes(kubernetes)
        converted = convert_kubernetes(sources, options.gvc, options.protocol)
        yield _Part(converted.drafts, [*faults, *make_findings(converted.remarks, kubernetes)])
    if compose := parts.get(Form.COMPOSE):
        chosen = (options.gvc, options.open_project, options.environ, options.name_directory)
        for project in convert_compose_files(compose, *chosen):
            yield _Part(project.drafts, project.findings, project.contents)
    for path, raw in parts.get(Form.KAMAL, {}).items():
        reader = options.open_project(kamal.directory_of(path))
        projects, faults = kamal.read_kamal(path, raw, options.destination, reader)
        yield _Part(findings=faults)
        for deployment in projects[:1]:
            converted = kamal.convert_kamal_project(deployment, options.gvc)
            findings = make_findings(converted.remarks, deployment.contents)
            yield _Part(converted.drafts, findings, deployment.contents)
    if quadlets := parts.get(Form.QUADLET):
        units, faults = read_units(quadlets)
        yield _Part(findings=faults)
        if units:
            converted = quadlet.convert_units(units, quadlets, options.gvc, options.open_project)
            yield _Part(converted.drafts, make_findings(converted.remarks, quadlets))


def _make_gvcs(drafts: Iterable[Draft], locations: Sequence[str]) -> list[Draft]:
    """The GVCs that ``drafts`` are in, at ``locations``."""
    links = [f"//location/{location}" for location in locations]
    return [
        Draft(
            Kind.GVC,
            "",
            name,
            {"kind": "gvc", "name": name, "spec": {"staticPlacement": {"locationLinks": links}}},
        )
        for name in sorted({draft.gvc for draft in drafts if draft.gvc})
    ]
