"""`reconciler doctor`: check this host, and suggest what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load_settings_as_owner, settings_option
from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.output.printing import echo_text
from reconciler.render.layout import paint_text
from reconciler.terminal.folding import is_colour_terminal

if TYPE_CHECKING:
    from reconciler.checks import Check, CheckVerdict

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command(epilog="Example: reconciler doctor --format json")
@output_option(has_names=False, has_alias=True)
@settings_option
def command(settings_file: Path, output: Output) -> int:
    """Check settings, rights, keys, sources, clock, disks, records, audit logs and the daemon, and suggest what to do.

    Of this host, what the manifests need is checked. Changes nothing. Exits with 1 if there is a problem, but not for
    warnings. Run it as root or as the daemon's user.
    """
    from reconciler.checks import CheckVerdict

    checks = []
    on = is_colour_terminal(sys.stdout)
    for check in _without_repeats(_run_checks(settings_file)):
        checks.append(check)
        if output.is_text:
            echo_text(_check_line(check, on))
    counts = {verdict: sum(check.verdict is verdict for check in checks) for verdict in CheckVerdict}
    if not output.is_text:
        problems, warnings = counts[CheckVerdict.PROBLEM], counts[CheckVerdict.WARNING]
        print_document(output, {"problems": problems, "warnings": warnings, "checks": checks})
    else:
        click.echo(", ".join(_format_count(counts[verdict], verdict) for verdict in CheckVerdict))
    return int(counts[CheckVerdict.PROBLEM] > 0)


def _without_repeats(checks: Iterable[Check]) -> Iterator[Check]:
    """``checks`` without those that only repeat what one before said of the same subject, as the records do."""
    from reconciler.checks import CheckVerdict

    problems: dict[str, list[str]] = {}
    for check in checks:
        seen = problems.setdefault(check.about, [])
        if check.verdict is not CheckVerdict.OK and any(text in check.message for text in seen):
            continue
        if check.verdict is CheckVerdict.PROBLEM:
            seen.append(check.message)
        yield check


def _run_checks(settings_file: Path) -> Iterator[Check]:
    from reconciler.checks import make_ok_check, make_problem
    from reconciler.clock import SystemClock
    from reconciler.daemon.lock import find_lock_holder
    from reconciler.doctor.audit import check_audit
    from reconciler.doctor.engines import check_certificates, check_engines
    from reconciler.doctor.host import check_host
    from reconciler.doctor.open_files import check_open_files
    from reconciler.doctor.permissions import check_rights, daemon_user
    from reconciler.doctor.records import check_records
    from reconciler.doctor.repositories import check_sources
    from reconciler.doctor.secrets import check_secrets
    from reconciler.doctor.volumes import check_volumes
    from reconciler.errors import UsageError

    try:
        settings = load_settings_as_owner(settings_file)
    except UsageError as error:
        for line in str(error).splitlines():
            yield make_problem("settings", line, "correct the settings; the daemon does not start with them")
        return
    names = ", ".join(source.name for source in settings.sources)
    yield make_ok_check("settings", f"{settings_file}: org {settings.org}, following {names}")
    clock, who, daemon = SystemClock(), daemon_user(settings), find_lock_holder(settings.state)
    yield from check_rights(settings, settings_file, who)
    yield from check_open_files(settings.state)
    yield from check_host(settings)
    yield from check_engines(settings, who, daemon.pid if daemon else None, clock)
    yield from check_volumes(settings, who)
    yield from check_certificates(settings, who, clock)
    yield from check_secrets(settings, who, clock)
    yield from check_sources(settings, who, clock)
    yield from check_records(settings, str(daemon or ""), clock.now())
    yield from check_audit(settings, clock)


def _format_count(count: int, verdict: CheckVerdict) -> str:
    return f"{count} {verdict}{'' if verdict == 'ok' or count == 1 else 's'}"


def _check_line(check: Check, on: bool) -> str:
    head = f"{paint_text(f'{check.verdict:<8}', _COLOURS[check.verdict], on)} {check.about}: {check.message}"
    return f"{head}\n         {check.advice}" if check.advice else head
