"""`reconciler up`: run the manifests of a directory or repository on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import click

from reconciler.cli.commands.init import TEMPLATES, create_example
from reconciler.cli.local.followed_source import choose_source, read_declared
from reconciler.cli.local_settings import Followed, check_directory, write_settings
from reconciler.cli.options import DEFAULT_ORG, Duration, org_option, refused_settings_option
from reconciler.errors import RefusedError, UsageError


class StartOptions(NamedTuple):
    """How the daemon is started: apart from this terminal or not, its longest wait in seconds, and more settings."""

    detach: bool
    timeout: float
    org: str
    more: tuple[str, ...]


@click.command(epilog="Example: reconciler up . --detach")
@click.argument("source", metavar="[DIR|URL]", default="")
@click.option("-f", "--file", "files", metavar="FILE", multiple=True, help="Run this file of compose or Kamal.")
@click.option("--k8s", metavar="DIR", default="", help="Run the Kubernetes YAML below DIR.")
@click.option("-d", "--detach", is_flag=True, help="Return once all is well, and leave it running.")
@click.option(
    "--timeout",
    type=Duration(),
    default=120.0,
    metavar="TIME",
    help="How long --detach waits; default 2m.",
)
@click.option("--yes", is_flag=True, help="Do not ask: make a repository where there is none.")
@click.option("--set", "more", metavar="FIELD=VALUE", multiple=True, help="Add a setting; repeatable.")
@click.option("--template", type=click.Choice(TEMPLATES), metavar="NAME", help="The example in an empty DIR; web.")
@org_option
@refused_settings_option("those of a file: reconciler run --settings FILE; one more: up --set FIELD=VALUE")
def command(source: str, files: tuple[str, ...], k8s: str, yes: bool, template: str | None, **options: Any) -> int:
    """Run what the newest commit of DIR or URL says on this machine; needs no settings and no root.

    Of DIR, the branch that is checked out is followed. Its locations are this machine. Ctrl-C ends all of it; with
    --detach, `reconciler down`. Other commands called in DIR find what runs. With -f or --k8s, files are converted into
    a repository below the state directory; after an edit, run it again.
    """
    start = StartOptions(**options)
    named = [*files, *([k8s] if k8s else [])]
    if named and source:
        raise UsageError("DIR or URL is for manifests, -f and --k8s for files of other tools; name one of them")
    if named:
        return _run_converted(named, start)
    followed = _choose_source(source or ".", template, yes=yes)
    declared = read_declared(followed)
    file = write_settings(followed, declared.locations, start.org or declared.org or DEFAULT_ORG, start.more)
    return _start_daemon(followed, file, start)


def _start_daemon(followed: Followed, file: Path, options: StartOptions) -> int:
    from reconciler.cli.local.up_daemon import run_detached, run_in_terminal

    return run_detached(followed, file, options.timeout) if options.detach else run_in_terminal(followed, file)


def _run_converted(files: list[str], options: StartOptions) -> int:
    """Convert ``files`` and run them; where they run already, the daemon applies what differs."""
    from reconciler.cli.local.converted_source import follow_converted
    from reconciler.cli.local.up_daemon import apply_again, is_running
    from reconciler.cli.local_settings import DEFAULT_LOCATION
    from reconciler.cli.options import load_settings_as_owner

    followed, commit = follow_converted(files)
    what = f"commit {commit[:12]}" if commit else "nothing differs from the last conversion"
    click.echo(f"Converted into {followed.url}: {what}")
    file = write_settings(followed, [DEFAULT_LOCATION], options.org or DEFAULT_ORG, options.more)
    settings = load_settings_as_owner(file)
    if is_running(settings):
        return apply_again(settings, file, options.timeout)
    click.echo(f"To keep the manifests: reconciler convert --commit --location local {' '.join(files)}")
    return _start_daemon(followed, file, options)


def _choose_source(source: str, template: str | None, *, yes: bool) -> Followed:
    """What ``source`` means, a repository once ``_offer_repository`` made one. Raises RefusedError and UsageError."""
    if Path(source).is_dir():
        _offer_repository(Path(source).resolve(), template, yes=yes)
    return choose_source(source)


def _offer_repository(directory: Path, template: str | None, *, yes: bool) -> None:
    """Make a repository of ``directory`` where it is in none; an empty one gets an example. Raises RefusedError."""
    import pygit2

    if pygit2.discover_repository(str(directory)) is not None:
        return
    is_empty = not any(directory.iterdir())
    check_directory(directory)
    needed = "--yes, or --template NAME" if is_empty else "--yes"
    what = "write an example into it, as a repository" if is_empty else "make it one, with a commit of all files"
    if not (yes or (is_empty and template)):
        if not sys.stdin.isatty():
            raise RefusedError(f"{directory} is in no Git repository; to {what}, add {needed}")
        click.confirm(f"{directory} is in no Git repository: {what}?", default=True, abort=True, err=True)
    if is_empty:
        create_example(directory, template or ("web" if yes else _ask_template()))
        return
    from reconciler.cli.git_commands import make_repository

    make_repository(directory, "Begin")


def _ask_template() -> str:
    """The example that a person on this terminal wants."""
    return str(click.prompt("Which example", type=click.Choice(TEMPLATES), default="web", err=True))
