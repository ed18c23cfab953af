"""`reconciler diff`: show what would change between two commits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from reconciler.cli.options import (
    DEFAULT_ORG,
    blame_option,
    load_or_none,
    org_option,
    records_or_none,
    select_sources,
    settings_option,
)
from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text
from reconciler.cli.privileges import become_owner
from reconciler.errors import UsageError
from reconciler.terminal.folding import is_colour_terminal

if TYPE_CHECKING:
    from reconciler.render.plan.review import PlanReview
    from reconciler.settings import Settings, SourceSettings


class CommitOptions(NamedTuple):
    """Options that locate the commits; options that are not set are empty."""

    repo: Path | None
    below: str
    name: str
    org: str
    gvc: str
    key: str


DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(epilog="Example: reconciler diff origin/main HEAD --format markdown")
@click.argument("rev1", default="HEAD", metavar="[REV1]")
@click.argument("rev2", default="", metavar="[REV2]")
@click.option("--repo", type=DIRECTORY, help="The repository; else the source's, or this one.")
@click.option("--path", "below", metavar="DIR", default=".", help="Where in --repo the manifests are.")
@click.option("--source", "name", metavar="NAME", default="", help="The source in the settings; else the first.")
@blame_option
@output_option("markdown", has_alias=True)
@org_option
@click.option("--gvc", metavar="NAME", default="", help="The GVC where no directory has just one.")
@click.option("--key", metavar="KEY", default="", help="Only workload/GVC/NAME, from REV1 to REV2.")
@settings_option
def command(settings_file: Path, rev1: str, rev2: str, output: Output, blame: bool | None, **where: Any) -> int:
    """Show what would change from the commit REV1, as if it were applied, to REV2.

    Without REV2, up to what the work tree holds, from HEAD by default. Needs no records and no settings, so it works in
    CI. Exits with 1 if REV2 has errors. HEAD is the checked-out commit; for a source the applied one.
    """
    from reconciler.render.plan.review import plan_document, plan_markdown, plan_text
    from reconciler.review.compare import plan_between, plan_work_tree

    settings, source, is_here = _find_source(settings_file, CommitOptions(**where), rev2)
    head = _resolve_head(settings, source, (rev1, rev2), is_here)
    if where["key"]:
        review = _compare_key(settings, source, (rev1, rev2, head), where["key"])
    elif rev2:
        review = plan_between(settings, source, rev1, rev2, blame, head)
    else:
        review = plan_work_tree(settings, source, rev1, blame, head)
    if output.base == "json":
        print_document(output, plan_document(review), "steps")
    else:
        is_text = output.is_text
        shown = plan_text(review, colour=is_colour_terminal(sys.stdout)) if is_text else plan_markdown(review)
        (echo_text if is_text else click.echo)(shown, nl=False)
    return int(review.plan is None)


def _compare_key(settings: Settings, source: SourceSettings, revisions: Sequence[str], text: str) -> PlanReview:
    """What differs of the resource ``text`` between two revisions; the third of ``revisions`` is HEAD."""
    from reconciler.model.key import Key
    from reconciler.queries.revisions import Comparison, compare_revisions, list_unread, review_diff

    before, after, head = revisions
    if not after:
        raise UsageError("--key compares two commits: name REV1 and REV2")
    try:
        key = Key.parse(text)
    except ValueError as error:
        raise UsageError(f"--key: {error}") from None
    diff = compare_revisions(settings, source, records_or_none(settings), Comparison(before, after, key, head))
    for line in list_unread(diff):
        echo_text(line, err=True)
    return review_diff(diff)


class _ComparedSource(NamedTuple):
    """The source to compare; ``is_here`` if it is a repository that the settings do not name."""

    settings: Settings
    source: SourceSettings
    is_here: bool


def _resolve_head(settings: Settings, source: SourceSettings, revisions: tuple[str, str], is_here: bool) -> str:
    """The meaning of HEAD: the checked-out commit (``is_here``), else the applied one; "" for the newest one."""
    from reconciler.source.expression import CHECKOUT, names_head

    if is_here or not any(map(names_head, revisions)):
        return CHECKOUT if is_here else ""
    row = records_or_none(settings).sources.get(source.name)
    return row.commit if row is not None else ""


def _find_source(settings_file: Path, where: CommitOptions, revision: str) -> _ComparedSource:
    """The source in the settings, else the named or current repository, whose ``revision`` may name its org."""
    from msgspec.structs import replace

    from reconciler.settings import SourceSettings

    settings = load_or_none(settings_file)
    if where.repo is None and settings is not None:
        become_owner(settings.state)  # the mirror of a remote source is there
        settings = replace(settings, org=where.org or settings.org)
        source = select_sources(settings, where.name)[0]
        return _ComparedSource(settings, replace(source, gvc=where.gvc or source.gvc), is_here=False)
    url = str((where.repo or _find_repository()).resolve())
    here = SourceSettings(name=where.name or "here", url=url, path=where.below, gvc=where.gvc)
    settings = settings or _make_settings(here, where.org, revision)
    settings = replace(settings, org=where.org or settings.org, sources=(here,))
    return _ComparedSource(settings, here, is_here=True)


def _make_settings(source: SourceSettings, org: str, revision: str) -> Settings:
    """Settings for ``source`` alone; its org is ``org``, else the one that ``revision`` ("": its work tree) names."""
    from msgspec.structs import replace

    from reconciler.review.compare import find_org
    from reconciler.settings import Settings

    settings = Settings(org=org or DEFAULT_ORG, sources=(source,))
    return settings if org else replace(settings, org=find_org(settings, source, revision) or DEFAULT_ORG)


def _find_repository() -> Path:
    """The repository of the current directory."""
    here = Path.cwd()
    path = next((folder for folder in (here, *here.parents) if _is_repository(folder)), None)
    if path is None:
        raise UsageError(f"{here} is not in a Git repository; name one with --repo")
    return path


def _is_repository(folder: Path) -> bool:
    """Whether ``folder`` is a work tree, or a repository without one."""
    return (folder / ".git").exists() or all((folder / part).exists() for part in ("HEAD", "objects", "refs"))
