"""`make run`: the daemon on a fresh copy of the example, with commands to try in a second terminal."""

from __future__ import annotations

import asyncio
import io
import shlex
import subprocess
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import click

from reconciler.cli import cli
from reconciler.cli.common import coloured, complain, load, paint
from reconciler.errors import ReconcilerError, UsageError

SETTINGS = """\
# Written for a trial: the daemon follows the repository beside this file and runs nothing for real.
org: acme
state: state
sources:
  - {name: main, url: manifests, branch: main, interval: 5s, status: {interval: 5s}}
locations:
  aws-us-west-2: {engine: recorded}
  gcp-us-east1: {engine: recorded}
log: {format: console}
"""

STEPS = (
    ("Point a second terminal at this trial", ("export PATH={bin}:$PATH RECONCILER_SETTINGS={settings}", "cd {repo}")),
    ("See what is there", ("reconciler get", "reconciler describe gvc/shop")),
    (
        "Ask for something on a branch, and read the plan before it happens",
        (
            "git switch --quiet --create bigger",
            "sed -i 's/maxScale: 6/maxScale: 8/' shop/api.yaml",
            'git commit --quiet --all --message "Let the API grow to eight replicas"',
            "reconciler plan --revision bigger",
        ),
    ),
    (
        "Make it happen: merge, and watch the daemon's line appear in the first terminal",
        ("git switch --quiet main", "git merge --quiet bigger", "reconciler events --last 4"),
    ),
    (
        "Make a mistake: it is refused with its place, and what runs stays as it is",
        (
            "sed -i 's/cpu: 250m/cpus: 250m/' shop/api.yaml",
            "reconciler validate . || true",
            "git restore shop/api.yaml",
        ),
    ),
    (
        "Read what was written back to Git, on a branch of its own",
        ("git log --oneline reconciler/status", "git show reconciler/status:shop/workload/api.yaml"),
    ),
)
"""What to try, in this order: a title and commands, each a line of a shell."""


def prepare(directory: Path) -> Path:
    """Make ``directory`` a trial, or take it as one that was begun before; returns its settings file.

    Raises UsageError where something else lies there.
    """
    settings = directory / "settings.yaml"
    if settings.exists() and (directory / "manifests").is_dir():
        return settings
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is neither empty nor a trial begun before; name another directory")
    with redirect_stdout(io.StringIO()):
        cli.main(["init", str(directory / "manifests")], standalone_mode=False)
    _introduce(directory / "manifests")
    settings.write_text(SETTINGS)
    return settings


def _introduce(repository: Path) -> None:
    """Name an author for this repository where Git knows none, since the commands below make commits."""
    git = ["git", "-C", str(repository)]
    if subprocess.run([*git, "var", "GIT_AUTHOR_IDENT"], capture_output=True, check=False).returncode:
        for name, value in (("user.name", "Trial"), ("user.email", "trial@localhost")):
            subprocess.run([*git, "config", name, value], check=True)


def guide(directory: Path, colour: bool) -> str:
    """What to try next: titles, and indented below them commands that work as they stand."""
    names = {
        "bin": shlex.quote(str(Path(sys.executable).parent)),
        "settings": shlex.quote(str(directory / "settings.yaml")),
        "repo": shlex.quote(str(directory / "manifests")),
    }
    lines = [f"A daemon follows a repository of its own now, in {directory}."]
    for number, (title, commands) in enumerate(STEPS, 1):
        lines += ["", paint(f"{number}. {title}", "bold", colour)]
        lines += ["    " + paint(command.format(**names), "green", colour) for command in commands]
    lines += ["", paint("Its log follows; Ctrl-C ends it.", "grey", colour)]
    return "\n".join(lines)


def farewell(directory: Path) -> str:
    """How to go on, or to leave nothing behind."""
    place = shlex.quote(str(directory))
    return f"\nStopped. Go on where it was:  make run DEMO_DIR={place}\nLeave nothing behind:         rm -rf {place}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path | None) -> None:
    """Run the daemon on a fresh copy of the example, in DIR or a scratch directory, until Ctrl-C."""
    from reconciler import logs
    from reconciler.daemon.service import serve

    place = (directory or Path(tempfile.mkdtemp(prefix="reconciler-"))).resolve()
    settings = load(prepare(place))
    click.echo(guide(place, coloured(sys.stdout)) + "\n")
    sys.stdout.flush()
    logs.configure(settings.log.format, settings.log.level)
    asyncio.run(serve(settings))
    click.echo(farewell(place))


def main() -> None:
    """Run the trial and exit: 0 once it was stopped, 1 or 2 with a message where it cannot begin."""
    try:
        command(prog_name="reconciler.demo")
    except ReconcilerError as error:
        complain(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()
