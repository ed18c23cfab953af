"""`make run`: the daemon runs a fresh copy of the example, with commands to try in a second terminal."""

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
from reconciler.cli.foreground import run_in_foreground
from reconciler.cli.local_settings import choose_page_port
from reconciler.cli.options import load_settings_as_owner
from reconciler.cli.output.printing import print_error
from reconciler.errors import ReconcilerError, UsageError
from reconciler.render.layout import paint_text
from reconciler.terminal.folding import is_colour_terminal

SETTINGS = """\
# Written for a trial: the daemon follows the repository beside this file and runs what it says on this machine.
org: acme
state: state
sources:
  - {{name: main, url: manifests, branch: main, interval: 5s, status: {{interval: 5s}}}}
locations:
  aws-us-west-2: {{engine: host, runtime: process}}
  gcp-us-east1: {{engine: host, runtime: process}}
# Replicas end in seconds here; left out, each has 45 seconds to finish its requests and 45 more to end.
# A daemon that is root runs them as root too: the trial lies where others may not look.
host: {{terminationScale: 0.1, defaultUser: root, volumes: directory}}
api: {{address: 127.0.0.1:{port}}}
log: {{format: console}}
"""

STEPS = (
    ("Point a second terminal at this trial", ("export PATH={bin}:$PATH RECONCILER_SETTINGS={settings}", "cd {repo}")),
    ("See what is there, and what runs", ("reconciler get", "reconciler top --once")),
    (
        "Open the address of shop/web that the first terminal names, change the page, and load it again",
        (
            "sed -i 's/<h1>Shop in/<h1>Our shop in/' shop/web.yaml",
            'git commit --quiet --all --message "Call it ours"',
            "reconciler apply --wait",
            'reconciler logs \'{{gvc="shop"}} != "/healthz"\' --limit 5',
        ),
    ),
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
"""Things to try, in order: a title and shell commands."""


def prepare_trial(directory: Path) -> Path:
    """Create a trial in ``directory``, or reuse the trial there; returns its settings file.

    Raises UsageError if the directory contains something else.
    """
    settings = directory / "settings.yaml"
    if settings.exists() and (directory / "manifests").is_dir():
        return settings
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is neither empty nor a trial begun before; name another directory")
    with redirect_stdout(io.StringIO()):
        cli.main(["init", str(directory / "manifests")], standalone_mode=False)
    _set_git_author(directory / "manifests")
    settings.write_text(SETTINGS.format(port=choose_page_port()))
    return settings


def _set_git_author(repository: Path) -> None:
    """Set an author for this repository if Git has none, since the guide's commands make commits."""
    git = ["git", "-C", str(repository)]
    if subprocess.run([*git, "var", "GIT_AUTHOR_IDENT"], capture_output=True, check=False).returncode:
        for name, value in (("user.name", "Trial"), ("user.email", "trial@localhost")):
            subprocess.run([*git, "config", name, value], check=True)


def format_guide(directory: Path, colour: bool) -> str:
    """The things to try: titles, and below them, indented, commands that work as shown."""
    names = {
        "bin": shlex.quote(str(Path(sys.executable).parent)),
        "settings": shlex.quote(str(directory / "settings.yaml")),
        "repo": shlex.quote(str(directory / "manifests")),
    }
    lines = [f"A daemon follows a repository of its own now and runs what it says on this machine, in {directory}."]
    for number, (title, commands) in enumerate(STEPS, 1):
        lines += ["", paint_text(f"{number}. {title}", "bold", colour)]
        lines += ["    " + paint_text(command.format(**names), "green", colour) for command in commands]
    lines += ["", paint_text("Its log follows, and the addresses that answer; Ctrl-C ends all of it.", "grey", colour)]
    return "\n".join(lines)


def format_farewell(directory: Path) -> str:
    """The message on how to continue the trial, or to remove it."""
    path = shlex.quote(str(directory))
    return f"\nStopped. Go on where it was:  make run DEMO_DIR={path}\nLeave nothing behind:         rm -rf {path}"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False, path_type=Path))
def command(directory: Path | None) -> None:
    """Run the daemon on a fresh copy of the example, in DIR or a scratch directory, until Ctrl-C."""
    from reconciler import logs

    path = (directory or Path(tempfile.mkdtemp(prefix="reconciler-"))).resolve()
    settings = load_settings_as_owner(prepare_trial(path))
    click.echo(format_guide(path, is_colour_terminal(sys.stdout)) + "\n")
    sys.stdout.flush()
    logs.configure_logging(settings.log.format, settings.log.level)
    asyncio.run(run_in_foreground(settings, click.echo))
    click.echo(format_farewell(path))


def main() -> None:
    """Run the trial and exit: 0 after a stop, 1 or 2 with a message if it cannot start."""
    try:
        command(prog_name="reconciler.demo")
    except ReconcilerError as error:
        print_error(str(error))
        sys.exit(2 if isinstance(error, UsageError) else 1)


if __name__ == "__main__":
    main()
