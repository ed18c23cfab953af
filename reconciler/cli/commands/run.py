"""`reconciler run`: run the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load_settings_as_owner, settings_option

if TYPE_CHECKING:
    from reconciler.settings import Settings


@click.command(epilog="Example: reconciler run --settings /etc/reconciler/settings.yaml")
@click.option("--bind-locations", is_flag=True, hidden=True)  # of `up --detach`
@settings_option
def command(settings_file: Path, bind_locations: bool) -> None:
    """Follow the sources and apply their manifests, until SIGTERM or SIGINT.

    SIGHUP checks all sources at once. Settings are reloaded when their file changes; if they have errors, these are
    reported and the former settings stay in use. Only one daemon can use a state directory. If the directory, or the
    lock in it, is deleted or replaced, the daemon exits with 2 and writes nothing further.
    """
    import asyncio

    from reconciler import logs

    settings = load_settings_as_owner(settings_file)
    logs.configure_logging(settings.log.format, settings.log.level)
    asyncio.run(_run_service(settings, settings_file, bind_locations=bind_locations))


async def _run_service(settings: Settings, file: Path, *, bind_locations: bool) -> None:
    import asyncio

    from reconciler.daemon.service import run_daemon
    from reconciler.tasks import exit_at_most

    binding = None
    if bind_locations:
        from reconciler.cli.local.location_binding import bind_new_locations

        binding = asyncio.create_task(bind_new_locations(settings, file))
    await run_daemon(settings, file=file)
    if binding is not None:
        binding.cancel()
    exit_at_most()
