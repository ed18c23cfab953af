"""Starts the daemon of `reconciler up`: in this terminal, or apart from it until all is well."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.local_settings import Followed
from reconciler.cli.output.printing import echo_text, note_at_interrupt, note_uncommitted
from reconciler.errors import LockedError, ReconcilerError, RecordsError, RefusedError

if TYPE_CHECKING:
    from reconciler.settings import Settings

_POLL_SECONDS = 0.1
_ADDRESS_PATIENCE = 10.0
"""Seconds for the proxy to serve what is ready; after that, it is shown without an address."""
_LOG_FILE = "log"
"""In the state directory: what a detached daemon prints."""
_START_FILE = "starting"
"""In the state directory, locked by the `up` that starts a daemon there."""


def run_in_terminal(followed: Followed, file: Path) -> int:
    """Run the daemon with the settings in ``file`` until Ctrl-C; returns the exit code. Raises LockedError."""
    import asyncio

    from reconciler import logs
    from reconciler.cli.foreground import run_in_foreground
    from reconciler.cli.options import load_settings_as_owner

    settings = load_settings_as_owner(file)
    refuse_second(settings, followed)
    note_uncommitted(settings.sources)
    at = f"branch {followed.branch}" if followed.branch else f"commit {followed.commit[:12]}"
    echo_text(f"Following {followed.url} ({at}): commit, and it runs.\nSettings: {file}")
    click.echo("The addresses that answer follow, and the log; Ctrl-C ends all of it.\n")
    sys.stdout.flush()
    logs.configure_logging(settings.log.format, settings.log.level)
    asyncio.run(run_in_foreground(settings, click.echo, file))
    echo_text(f"\nStopped. Volumes and records stay in {settings.state}; to remove them: reconciler down --volumes")
    return 0


def is_running(settings: Settings) -> bool:
    """Whether a daemon runs for ``settings``."""
    from reconciler.daemon.lock import find_lock_holder

    return find_lock_holder(settings.state) is not None


def refuse_second(settings: Settings, followed: Followed) -> None:
    """Raise LockedError where a daemon runs for ``settings``."""
    from reconciler.daemon.lock import find_lock_holder

    if (holder := find_lock_holder(settings.state)) is not None:
        raise LockedError(
            f"{followed.url} runs already ({holder}); `reconciler status` shows it, `reconciler down` ends it"
        )


def run_detached(followed: Followed, file: Path, timeout: float) -> int:
    """Start the daemon apart from this terminal, and show the status once all is well; returns the exit code."""
    from reconciler.cli.options import load_settings_as_owner

    settings = load_settings_as_owner(file)
    deadline = time.monotonic() + timeout
    with _lock_start(followed.state):
        refuse_second(settings, followed)
        note_uncommitted(settings.sources)
        log = followed.state / _LOG_FILE
        daemon = _start_daemon(file, log)
        going_on = f"the daemon goes on as pid {daemon.pid}: `reconciler status` shows it, `reconciler down` ends it"
        with note_at_interrupt(going_on):
            _wait_for_lock(settings, daemon, log, deadline)
    with note_at_interrupt(going_on):
        _wait_for_run(settings, daemon, log, deadline)
        code = show_status(settings, file, deadline)
    echo_text(f"The daemon runs as pid {daemon.pid}; its log is {log}. To end all of it: reconciler down")
    return code


def show_status(settings: Settings, file: Path, deadline: float) -> int:
    """Wait until nothing is in progress, show the status and the addresses that answer; returns the exit code."""
    from reconciler.cli.foreground import list_trials, read_addresses
    from reconciler.cli.overview_commands import Display, show_overview
    from reconciler.overviews.table import STATUS

    patience = max(0.0, deadline - time.monotonic())
    code = show_overview(STATUS, file, {"target": ""}, Display(wait=True, timeout=patience))
    deadline = min(deadline, time.monotonic() + _ADDRESS_PATIENCE)
    while not all(reader.is_serving() for reader in list_trials(settings)) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    for name, address in sorted(read_addresses(settings).items()):
        click.echo(f"  {name}: {address}")
    _show_page(settings, deadline)
    return code


def _show_page(settings: Settings, deadline: float) -> None:
    """Print a link to the page, on which it logs in once, as soon as the API answers."""
    from reconciler.cli.page_links import has_page, make_link

    while has_page(settings):
        try:
            click.echo(f"  The page: {make_link(settings)}")
        except ReconcilerError as error:
            if isinstance(error, RefusedError) or time.monotonic() >= deadline:
                click.echo(f"  The page: none yet: {error}")
                return
            time.sleep(_POLL_SECONDS)
        else:
            return


def apply_again(settings: Settings, file: Path, timeout: float) -> int:
    """Let the daemon that runs make a run, and show the status once all is well; returns the exit code."""
    deadline = time.monotonic() + timeout
    _request_run(settings, deadline)
    return show_status(settings, file, deadline)


@contextmanager
def _lock_start(state: Path) -> Iterator[None]:
    """Keep another `up` from starting a daemon in ``state`` meanwhile; it would empty the log of this one."""
    with (state / _START_FILE).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start_daemon(file: Path, log: Path) -> subprocess.Popen[bytes]:
    program = Path(sys.executable).with_name("reconciler")  # processes are listed by this name
    words = [str(program)] if program.exists() else [sys.executable, "-m", "reconciler.cli"]
    words += ["run", "--bind-locations", "--settings", str(file)]
    with log.open("wb") as output:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/"
        )


def _wait_for_lock(settings: Settings, daemon: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    """Wait until ``daemon`` has the state directory. Raises RefusedError with its last words where it ends before."""
    from reconciler.daemon.lock import find_lock_holder

    while time.monotonic() < deadline:
        holder = find_lock_holder(settings.state)
        if holder is not None and holder.pid == daemon.pid:
            return
        _check_alive(daemon, log)
        time.sleep(_POLL_SECONDS)


def _wait_for_run(settings: Settings, daemon: subprocess.Popen[bytes], log: Path, deadline: float) -> None:
    """Wait until the daemon has made a run. Raises RefusedError with its last words where it ends before."""
    from reconciler.records.store import FILE

    while time.monotonic() < deadline:
        _check_alive(daemon, log)
        if (settings.state / FILE).exists():
            with suppress(RecordsError):
                _request_run(settings, deadline)
                return
        time.sleep(_POLL_SECONDS)


def _request_run(settings: Settings, deadline: float) -> None:
    from reconciler.cli.daemon_requests import request_run
    from reconciler.clock import SystemClock
    from reconciler.records.store import Records

    with closing(Records.open_existing(settings.state, SystemClock())) as records:
        request_run(records, settings.state, max(0.0, deadline - time.monotonic()), None)


def _check_alive(daemon: subprocess.Popen[bytes], log: Path) -> None:
    if daemon.poll() is not None:
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise RefusedError(f"the daemon ended at once: {last}; its log is {log}")
