"""`reconciler run`: run the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load, settings_option

if TYPE_CHECKING:
    from reconciler.settings import Settings


@click.command(epilog="Example: reconciler run --settings /etc/reconciler/settings.yaml")
@settings_option
def command(settings_file: Path) -> None:
    """Follow the sources and make their manifests so, until SIGTERM or SIGINT.

    SIGHUP looks at all sources at once. Settings are taken over when their file changes; what is wrong with them is
    said, and the former ones go on. Only one daemon works on a state directory. Where that, or the lock in
    it, is deleted or replaced meanwhile, the daemon exits with 2 and writes nothing more.
    """
    import asyncio

    from reconciler import logs

    settings = load(settings_file)
    logs.configure(settings.log.format, settings.log.level)
    asyncio.run(_serve(settings, settings_file))


async def _serve(settings: Settings, file: Path) -> None:
    from reconciler.daemon.service import serve
    from reconciler.tasks import exit_at_most

    await serve(settings, file=file)
    exit_at_most()
