"""`reconciler up`: run the manifests of a directory or repository on this machine."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.local_settings import Followed, find_state, follow_directory
from reconciler.cli.options import DEFAULT_ORG, Duration, org_option
from reconciler.errors import LockedError, RecordsError, RefusedError, UsageError

if TYPE_CHECKING:
    from reconciler.settings import Settings

_POLL_SECONDS = 0.1
_LOG_FILE = "log"
"""In the state directory: what a detached daemon prints."""


@click.command(epilog="Example: reconciler up . --detach")
@click.argument("source", metavar="[DIR|URL]", default=".")
@click.option("-d", "--detach", is_flag=True, help="Return once all is well, and leave the daemon running.")
@click.option(
    "--timeout",
    type=Duration(),
    default=120.0,
    metavar="TIME",
    help="How long --detach waits; default 2m.",
)
@click.option("--yes", is_flag=True, help="Make a repository and a commit where there is none, without asking.")
@org_option
def command(source: str, detach: bool, timeout: float, yes: bool, org: str) -> int:
    """Run what the newest commit of DIR or URL says on this machine; needs no settings and no root.

    DIR is a repository or a directory in one: the branch that is checked out is followed. Its locations are this
    machine, with images where Podman is, else with processes. The addresses that answer are printed. Ctrl-C ends all
    of it; with --detach, `reconciler down`. Other commands find what runs when they are called in DIR.
    """
    followed = _follow(source, yes=yes)
    file = _prepare(followed, org or DEFAULT_ORG)
    return _run_detached(followed, file, timeout) if detach else _run_here(followed, file)


def _follow(source: str, *, yes: bool) -> Followed:
    """What ``source`` means. Raises RefusedError and UsageError."""
    directory = Path(source)
    if not directory.exists():
        if "://" in source or _is_scp_address(source):
            return Followed(source, _find_default_branch(source))
        raise UsageError(f"{source} does not exist; name a directory, or the URL of a repository")
    if not directory.is_dir():
        raise UsageError(f"{source} is a file; name the directory of a repository")
    directory = directory.resolve()
    _offer_repository(directory, yes=yes)
    return follow_directory(directory)


def _is_scp_address(source: str) -> bool:
    """Whether ``source`` is an address such as ``git@host:path``."""
    host, colon, path = source.partition(":")
    return bool(colon and path) and "/" not in host and "@" in host


def _find_default_branch(url: str) -> str:
    """The branch that HEAD of a remote repository names. Raises RefusedError."""
    answer = subprocess.run(["git", "ls-remote", "--symref", url, "HEAD"], capture_output=True, text=True, check=False)
    first = answer.stdout.partition("\n")[0]
    if answer.returncode or not first.startswith("ref: refs/heads/"):
        reason = answer.stderr.strip().rpartition("\n")[2] or "it has no branch"
        raise RefusedError(f"{url} cannot be followed: {reason}")
    return first.removeprefix("ref: refs/heads/").partition("\t")[0]


def _offer_repository(directory: Path, *, yes: bool) -> None:
    """Make a repository of ``directory`` where it is in none; an empty one gets an example. Raises RefusedError."""
    import pygit2

    if pygit2.discover_repository(str(directory)) is not None:
        return
    is_empty = not any(directory.iterdir())
    what = "write an example into it, as a repository" if is_empty else "make it one, with a commit of all files"
    if not yes:
        if not sys.stdin.isatty():
            raise RefusedError(f"{directory} is in no Git repository; to {what}, add --yes")
        click.confirm(f"{directory} is in no Git repository: {what}?", default=True, abort=True, err=True)
    if is_empty:
        from reconciler.cli.commands.init import create_example

        create_example(directory, "web")
        return
    from reconciler.cli.commands.init import commit_all

    commit_all(directory, "Begin")


def _prepare(followed: Followed, org: str) -> Path:
    from reconciler.cli.local_settings import DEFAULT_LOCATION, list_uncommitted, read_locations, write_settings

    if "://" in followed.url or _is_scp_address(followed.url):
        return write_settings(followed, _read_remote_locations(followed) or [DEFAULT_LOCATION], org)
    file = write_settings(followed, read_locations(followed), org)
    differing = list_uncommitted(Path(followed.url))
    if differing:
        count = f"{len(differing)} file{'s differ' if differing[1:] else ' differs'} from the commit and"
        click.echo(f"{count} do{'' if differing[1:] else 'es'} not run: {', '.join(differing[:5])}", err=True)
    return file


def _read_remote_locations(followed: Followed) -> list[str]:
    """The locations in the newest commit of a remote repository, which is cloned for a moment. Raises RefusedError."""
    import tempfile

    from reconciler.cli.local_settings import read_locations

    with tempfile.TemporaryDirectory(prefix="reconciler-") as scratch:
        words = ["git", "clone", "--quiet", "--bare", "--depth=1", "--branch", followed.branch, followed.url, scratch]
        answer = subprocess.run(words, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise RefusedError(f"{followed.url} cannot be cloned: {answer.stderr.strip()}")
        return read_locations(followed._replace(url=scratch))


def _run_here(followed: Followed, file: Path) -> int:
    import asyncio

    from reconciler import logs
    from reconciler.cli.foreground import run_in_foreground
    from reconciler.cli.options import load_settings_as_owner

    settings = load_settings_as_owner(file)
    _refuse_second(settings, followed)
    _introduce(followed, file)
    logs.configure_logging(settings.log.format, settings.log.level)
    asyncio.run(run_in_foreground(settings, click.echo, file))
    click.echo(f"\nStopped. Volumes and records stay in {settings.state}; to remove them: reconciler down --volumes")
    return 0


def _refuse_second(settings: Settings, followed: Followed) -> None:
    from reconciler.daemon.lock import find_lock_holder

    if (holder := find_lock_holder(settings.state)) is not None:
        raise LockedError(
            f"{followed.url} runs already ({holder}); `reconciler status` shows it, `reconciler down` ends it"
        )


def _introduce(followed: Followed, file: Path) -> None:
    at = f"branch {followed.branch}" if followed.branch else f"commit {followed.commit[:12]}"
    click.echo(f"Following {followed.url} ({at}): commit, and it runs.\nSettings: {file}")
    click.echo("The addresses that answer follow, and the log; Ctrl-C ends all of it.\n")
    sys.stdout.flush()


def _run_detached(followed: Followed, file: Path, timeout: float) -> int:
    """Start the daemon apart from this terminal, and show the status once all is well; returns the exit code."""
    from reconciler.cli.foreground import read_addresses
    from reconciler.cli.options import load_settings_as_owner
    from reconciler.cli.overview_commands import Display, show_overview
    from reconciler.overviews.table import STATUS

    settings = load_settings_as_owner(file)
    _refuse_second(settings, followed)
    log = find_state(followed.url) / _LOG_FILE
    with log.open("wb") as output:
        program = Path(sys.executable).with_name("reconciler")  # processes are listed by this name
        words = [str(program)] if program.exists() else [sys.executable, "-m", "reconciler.cli"]
        words += ["run", "--settings", str(file)]
        daemon = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )
    deadline = time.monotonic() + timeout
    _wait_for_run(settings, daemon, log, deadline)
    code = show_overview(STATUS, file, {"target": ""}, Display(wait=True, timeout=deadline - time.monotonic()))
    for name, address in sorted(read_addresses(settings).items()):
        click.echo(f"  {name}: {address}")
    click.echo(f"The daemon runs as pid {daemon.pid}; its log is {log}. To end all of it: reconciler down")
    return code


def _wait_for_run(settings: Settings, daemon: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    """Wait until the daemon has looked at what runs, and made a run.

    Raises RefusedError with its last words where it ends before.
    """
    from contextlib import closing, suppress

    from reconciler.cli.daemon_requests import request_run
    from reconciler.clock import SystemClock
    from reconciler.daemon.lock import find_lock_holder
    from reconciler.records.store import Records

    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            last = log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise RefusedError(f"the daemon ended at once: {last}; its log is {log}")
        holder = find_lock_holder(settings.state)
        if holder is not None and holder.pid == daemon.pid:
            with suppress(RecordsError), closing(Records.open_existing(settings.state, SystemClock())) as records:
                request_run(records, settings.state, deadline - time.monotonic(), None)
                return
        time.sleep(_POLL_SECONDS)
