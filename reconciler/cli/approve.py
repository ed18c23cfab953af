"""`reconciler approve`: let the deletes go that a plan holds back."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import click

from reconciler.cli.common import load, settings_option


@click.command(epilog="Example: reconciler approve 3f6c0b52d1e94a7708c5e1b0a9d2f467")
@click.argument("digest")
@settings_option
def command(settings_file: Path, digest: str) -> None:
    """Let the deletes of the plan with this DIGEST go.

    `reconciler plan` prints the digest of a plan whose deletes wait. It covers what is to be done and not the
    commit, so a later commit that changes nothing about it does not void the approval.
    """
    from reconciler.pipeline import approve

    click.echo(approve(load(settings_file), digest, _operator()))


def _operator() -> str:
    """Who approves, for the records."""
    if user := os.environ.get("SUDO_USER"):
        return user
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
