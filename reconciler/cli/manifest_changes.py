"""Changes of a manifest by commands: their options, and what they print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from reconciler.cli.options import get_operator_name, load_settings_as_owner, settings_option
from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text, print_error, print_findings
from reconciler.terminal.folding import is_colour_terminal

if TYPE_CHECKING:
    from reconciler.changes.manifests import ChangeOptions, ManifestEditor
    from reconciler.changes.write import CheckedChange, RevisionRefused
    from reconciler.model.key import Key

_Command = TypeVar("_Command", bound=Callable[..., Any])


class ChangeParameters(NamedTuple):
    """What ``change_options`` add to a command."""

    settings_file: Path
    message: str
    review: bool
    dry_run: bool
    output: Output


def change_options(command: _Command) -> _Command:
    """Add the options that all changes of a manifest have, passed on as the fields of ``ChangeParameters``."""
    for add in (
        settings_option,
        output_option(),
        click.option("--dry-run", is_flag=True, help="Check the change and show the plan; commit nothing."),
        click.option("--review", is_flag=True, help="Commit to a branch of its own, as `api: {writes: branch}` does."),
        click.option("--message", metavar="TEXT", default="", help="The subject of the commit; else it names KEY."),
    ):
        command = add(command)
    return command


class ManifestChange:
    """A change of one manifest by a command. ``write`` and ``show`` may be used one after the other."""

    def __init__(self, manifest: ManifestEditor, parameters: ChangeParameters) -> None:
        self.manifest = manifest
        self._parameters = parameters

    @property
    def options(self) -> ChangeOptions:
        """How the change is made; the settings can require a review."""
        from reconciler.changes.manifests import ChangeOptions

        api = self.manifest.pipeline.settings.api
        review = self._parameters.review or (api is not None and api.writes == "branch")
        return ChangeOptions(self._parameters.message, review, self._parameters.dry_run)

    def show(self, change: CheckedChange | None) -> None:
        """Print what ``change`` has changed, and wake the daemon."""
        if not self._parameters.output.is_text:
            self._show_json(change)
        elif change is None:
            click.echo(f"{self.manifest.key} is unchanged")
        else:
            self._show_text(change)
        if change is not None and not self.options.dry:
            self._wake_daemon()

    def show_refusal(self, refused: RevisionRefused) -> int:
        """Print the errors that the change would bring; returns the exit code."""
        from reconciler.render.excerpt import Excerpts
        from reconciler.render.findings import explain_hint, findings_document

        if not self._parameters.output.is_text:
            print_document(self._parameters.output, findings_document(refused.errors, 0, 0))
        else:
            excerpts = Excerpts(lambda path: (refused.after.get(path) or "").encode())
            print_findings(refused.errors, excerpts, sys.stderr)
            echo_text(explain_hint(refused.errors), nl=False, err=True)
        print_error(str(refused))
        return 1

    def _show_json(self, change: CheckedChange | None) -> None:
        from reconciler.changes.document import change_document

        shown = None
        if change is not None:
            assert change.planned.plan is not None
            shown = change_document(change, change.planned.plan, str, dry=self.options.dry)
        print_document(self._parameters.output, {"key": str(self.manifest.key), "change": shown})

    def _show_text(self, change: CheckedChange) -> None:
        from reconciler.render.plan.review import plan_text
        from reconciler.review.plan import review_planned

        reviewed = review_planned(self.manifest.pipeline, change.planned, blame=False)
        echo_text(plan_text(reviewed, colour=is_colour_terminal(sys.stdout)), nl=False)
        if self.options.dry:
            click.echo("nothing was committed")
            return
        source = self.manifest.pipeline.name
        echo_text(f"{self.manifest.key}: commit {change.commit.id[:12]} on {change.branch} of the source {source}")
        if self.options.review:
            click.echo(f"open a review: {change.review or f'merge {change.branch}'}")

    def _wake_daemon(self) -> None:
        from reconciler.daemon.wake import wake_daemon

        pipeline = self.manifest.pipeline
        woken = wake_daemon(pipeline.settings.state, pipeline.name, "ref")
        if not woken and not self.options.review and self._parameters.output.is_text:
            click.echo("no daemon runs; the next `reconciler apply` applies it")


@contextmanager
def open_change(key: Key, parameters: ChangeParameters) -> Iterator[ManifestChange]:
    """Open the manifest of ``key`` for a change. Raises ReconcilerError."""
    from reconciler.changes.manifests import open_manifest
    from reconciler.clock import SystemClock

    settings = load_settings_as_owner(parameters.settings_file)
    with open_manifest(settings, SystemClock(settings.state), key, get_operator_name()) as manifest:
        yield ManifestChange(manifest, parameters)


def change_manifest(key: Key, parameters: ChangeParameters, patch_of: Callable[[Any], dict[str, Any]]) -> int:
    """Merge the patch that ``patch_of`` makes of the manifest of ``key``; returns the exit code."""
    from reconciler.changes.write import RevisionRefused

    with open_change(key, parameters) as change:
        try:
            change.show(change.manifest.patch(patch_of, change.options))
        except RevisionRefused as refused:
            return change.show_refusal(refused)
    return 0
