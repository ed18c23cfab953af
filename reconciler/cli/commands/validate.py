"""`reconciler validate`: check manifests and report every error with its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from reconciler.cli.options import (
    DEFAULT_ORG,
    load_or_none,
    load_settings_as_owner,
    org_option,
    records_or_none,
    settings_option,
)
from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text, source_errors_printed
from reconciler.errors import ReconcilerError, UsageError
from reconciler.input_files import STDIN

if TYPE_CHECKING:
    from reconciler.documents.recognition import Recogniser
    from reconciler.manifests.normalize import ManifestContext
    from reconciler.model.finding import Finding
    from reconciler.model.resource import Resource
    from reconciler.review.folder import FolderCheck

_STANDARD_INPUT = Path(STDIN)
_SHOWN_INPUT = "stdin"
_PATH = click.Path(exists=True, allow_dash=True, path_type=Path)
FORGES = ("github", "gitlab", "junit", "sarif")


class _Scope(NamedTuple):
    """What surrounds manifests: the settings, and the org and GVC that the command line names."""

    settings_file: Path
    org: str
    gvc: str


@click.command(epilog="Example: reconciler validate manifests/ --format json")
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=_PATH)
@click.option(
    "--revision",
    metavar="REV",
    default="",
    help="Another revision; HEAD is what is applied.",
)
@click.option("--fix", is_flag=True, help="First repair what has one safe repair.")
@click.option("-w", "--watch", is_flag=True, help="Check again after each change, until Ctrl-C.")
@output_option(*FORGES, has_names=False, has_alias=True)
@org_option
@click.option("--gvc", metavar="NAME", default="", help="The GVC where no directory has just one.")
@settings_option
def command(
    settings_file: Path, paths: tuple[Path, ...], output: Output, fix: bool, watch: bool, **options: str
) -> int:
    """Check manifests and report every error, with its place and what to do.

    Each PATH is a file or a directory, in Git or not, or - for standard input. References to files around it are
    resolved, up to a source's directory, a .reconcilerignore or the repository's root. Without PATH, the revision of
    every source in the settings is checked. Only errors make the exit code 1. In forms for a forge, paths
    are relative to the repository's root, else to the current directory.
    """
    revision = options["revision"]
    scope = _Scope(settings_file, options["org"], options["gvc"])
    if paths and revision:
        raise UsageError("--revision is for the sources in the settings; leave PATH out")
    if not paths and (scope.org or scope.gvc or fix or watch):
        name = "--org" if scope.org else "--gvc" if scope.gvc else "--fix" if fix else "--watch"
        raise UsageError(f"{name} is for a PATH; without one, the commits of the sources are checked")
    if (fix or watch) and _STANDARD_INPUT in paths:
        raise UsageError("- is standard input, which cannot be written or watched; name a file")

    def check() -> int:
        if fix:
            from reconciler.cli.repairing import repair_files

            repair_files(paths, _make_dialect(scope))
        failed: dict[str, ReconcilerError] = {}
        checked = _check_paths(paths, scope) if paths else _check_sources(settings_file, revision, failed)
        code = _report_checks(checked, failed, output)
        if paths and not any(check.documents or check.findings for check in checked):
            for path in paths:
                click.echo(_describe_emptiness(path), err=True)
        return code

    if watch:
        from reconciler.cli.watching import repeat_on_change

        repeat_on_change(paths, check)
    return check()


def _describe_emptiness(path: Path) -> str:
    """Why nothing at ``path`` was checked, and what a manifest begins with."""
    from reconciler.input_files import read_file

    is_input = path == _STANDARD_INPUT
    if path.is_dir():
        what = f"every file below {path} is empty or has only comments"
    elif is_input or not read_file(path).strip():
        what = "standard input has no manifest" if is_input else f"{path} is empty"
    else:
        what = f"{path} has no document, only comments or ---"
    return f"note: {what}; a manifest begins with kind and name; for what follows: reconciler explain workload"


def _report_checks(checked: Sequence[FolderCheck], failed: Mapping[str, ReconcilerError], output: Output) -> int:
    """Print the findings; returns the exit code."""
    from reconciler.model.finding import has_errors

    if checked or not failed:
        _print_results(checked, output)
    return int(bool(failed) or any(has_errors(check.findings) for check in checked))


def _check_paths(paths: Sequence[Path], scope: _Scope) -> list[FolderCheck]:
    """The check of each path; what lies in another one of them is checked with that. Raises as ``_check_path``."""
    by_place = {path.resolve(): path for path in paths if path != _STANDARD_INPUT}
    outer = [path for place, path in by_place.items() if by_place.keys().isdisjoint(place.parents)]
    checked = [_check_path(path, scope) for path in outer]
    return [*checked, *([_check_standard_input(scope)] if _STANDARD_INPUT in paths else [])]


def _check_standard_input(scope: _Scope) -> FolderCheck:
    """The check of standard input, alone: nothing is around it. Raises RefusedError and UsageError."""
    import tempfile

    from msgspec.structs import replace

    from reconciler.documents.encoding import is_json
    from reconciler.documents.recognition import MANIFESTS, Recogniser
    from reconciler.input_files import read_file

    content = read_file(STDIN)
    Recogniser(MANIFESTS).refuse_others({_SHOWN_INPUT: content})
    with tempfile.TemporaryDirectory(prefix="reconciler-") as folder:
        file = Path(folder) / (_SHOWN_INPUT + (".json" if is_json(content.lstrip()) else ".yaml"))
        file.write_bytes(content)
        check = _check_manifest_folder(file, scope)
    findings = [
        replace(finding, path=_SHOWN_INPUT, message=finding.message.replace(file.name, _SHOWN_INPUT))
        for finding in check.findings
    ]
    return replace(check, findings=findings, read=lambda _: content, folder=None, base="")


def _check_path(path: Path, scope: _Scope) -> FolderCheck:
    """The check of ``path``, with the command that takes a file of another tool. Raises RefusedError for one alone."""
    from reconciler.documents.recognition import MANIFESTS, Recogniser
    from reconciler.input_files import advice_below, read_file

    recogniser = Recogniser(MANIFESTS)
    if path.is_file():
        recogniser.refuse_others({str(path): read_file(path)})
    try:
        check = _check_manifest_folder(path, scope)
    except UsageError as error:
        hint = advice_below(str(path), recogniser.advice) if path.is_dir() else ""
        raise UsageError(f"{error}{hint}") from None
    return check if path.is_file() else _with_advice(check, path, recogniser)


def _with_advice(check: FolderCheck, path: Path, recogniser: Recogniser) -> FolderCheck:
    """``check`` with one finding for each file of another tool: its first error, with the command that takes it."""
    from msgspec.structs import replace

    from reconciler.model.finding import Severity

    advice: dict[str, str] = {}
    findings: list[Finding] = []
    for finding in check.findings:
        if advice.get(finding.path):
            continue
        if finding.severity is Severity.ERROR and finding.path not in advice:
            name = str(path / finding.path)
            advice[finding.path] = recogniser.advice(name, check.read(finding.path) or b"")
        words = advice.get(finding.path, "")
        findings.append(replace(finding, suggestion=words) if words else finding)
    return replace(check, findings=findings)


def _check_manifest_folder(path: Path, scope: _Scope) -> FolderCheck:
    from reconciler.pipeline.externals import ExternalResources
    from reconciler.review.folder import check_folder

    dialect, settings = _make_dialect(scope), load_or_none(scope.settings_file)
    if settings is None:
        return check_folder(path, dialect, ExternalResources(settings_unknown=True), gvc=scope.gvc)
    folders = {Path(source.url, source.path).absolute(): source.gvc for source in settings.sources if source.local}
    here = path.absolute()
    gvc = scope.gvc or next((name for folder, name in folders.items() if folder in (here, *here.parents)), "")
    return check_folder(path, dialect, ExternalResources.of(settings, scope.org), [*folders], gvc)


def _make_dialect(scope: _Scope) -> ManifestContext:
    """How manifests are read: as the settings have it, where there are any. Raises UsageError."""
    from msgspec.structs import replace

    from reconciler.manifests.normalize import ManifestContext
    from reconciler.secrets.host_files import keyring_of, list_channels

    key = b"only looked at, never kept"
    settings = load_or_none(scope.settings_file)
    if settings is None:
        return ManifestContext(scope.org or DEFAULT_ORG, secret_key=key, secrets="any", org_known=bool(scope.org))
    # A check of files works without identities that decrypt them.
    ring = replace(keyring_of(settings), required=False)
    policy, images = settings.secrets.policy, settings.images.patterns
    return ManifestContext(
        scope.org or settings.org,
        settings.scheme,
        key,
        ring,
        policy,
        images=images,
        unknown_fields=settings.unknown_fields,
        channels=list_channels(settings),
    )


def _check_sources(settings_file: Path, revision: str, failed: dict[str, ReconcilerError]) -> list[FolderCheck]:
    """Check each source; the errors of sources that cannot be read are printed and added to ``failed``."""
    from reconciler.clock import SystemClock
    from reconciler.pipeline.source_pipeline import SourcePipeline
    from reconciler.review.folder import FolderCheck

    settings = load_settings_as_owner(settings_file)
    records = records_or_none(settings)
    checked: list[FolderCheck] = []
    seen: dict[str, str] = {}
    for source in settings.sources:
        with source_errors_printed(source.name, failed):
            pipeline = SourcePipeline(settings, source, records, SystemClock())
            pipeline.source.refresh()
            delta = (prepared := pipeline.plan_revision(revision, whole=True)).loaded.change_set
            findings = sorted([*prepared.findings, *_check_duplicates(delta.added.values(), seen)])
            new = {
                key: f"{resource.path}:{resource.line} of source {source.name}" for key, resource in delta.added.items()
            }
            count = len(new.keys() - seen.keys())
            checked.append(FolderCheck(findings, delta.documents, count, prepared.read, source.path))
            seen |= new
    return checked


def _check_duplicates(resources: Iterable[Resource], seen: Mapping[str, str]) -> Iterator[Finding]:
    """Findings for resources that another source declares too, at the places in ``seen``."""
    from reconciler.model.finding import Finding, Severity

    for resource in resources:
        key = str(resource.key)
        if key in seen:
            message = f"{key} is declared twice: here and at {seen[key]}"
            yield Finding(
                resource.path,
                resource.line,
                1,
                "duplicate-resource",
                Severity.ERROR,
                message,
                "keep one of the two",
                key,
            )


def _print_results(checked: Sequence[FolderCheck], output: Output) -> None:
    from reconciler.cli.output.printing import print_findings
    from reconciler.render.excerpt import Excerpts
    from reconciler.render.findings import explain_hint, findings_document, pluralize_noun, severity_counts

    if output.form in FORGES:
        _show_to_a_forge(checked, output.form)
        return
    checked = [check.seen_from(Path.cwd()) for check in checked]
    findings = [finding for check in checked for finding in check.findings]
    documents, resources = sum(check.documents for check in checked), sum(check.resources for check in checked)
    if not output.is_text:
        print_document(output, findings_document(findings, documents, resources))
        return
    for folder_check in checked:
        print_findings(folder_check.findings, Excerpts(folder_check.read))
    seen = f"{pluralize_noun(documents, 'document')}, {pluralize_noun(resources, 'resource')}"
    echo_text(f"{severity_counts(findings)} in {seen}\n{explain_hint(findings)}", nl=False)


def _show_to_a_forge(checked: Sequence[FolderCheck], form: str) -> None:
    """Print the findings with their paths relative to the repository's root."""
    from msgspec.structs import replace

    from reconciler.source.file_reader import repository_path

    findings = [
        replace(finding, path=repository_path(one.base, finding.path)) for one in checked for finding in one.findings
    ]
    if form == "github":
        from reconciler.render.findings import severity_counts
        from reconciler.render.forges import workflow_commands

        click.echo(f"{workflow_commands(findings)}{severity_counts(findings)}")
        return
    from reconciler.cli.output.printing import echo_json

    if form == "junit":
        from reconciler.render.junit import build_junit_report

        click.echo(build_junit_report(findings), nl=False)
    elif form == "gitlab":
        from reconciler.render.forges import build_report

        echo_json(build_report(findings))
    else:
        from reconciler.render.sarif import build_sarif_run

        echo_json(build_sarif_run(findings))
