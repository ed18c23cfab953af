"""`reconciler render`: print the objects of a workload on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reconciler.cli.options import load_settings_as_owner, read_records, settings_option
from reconciler.cli.target_arguments import TargetCommand, key_argument

if TYPE_CHECKING:
    from reconciler.engines.plugin import SupportsRendering
    from reconciler.model.key import Key
    from reconciler.settings import Settings


@click.command(cls=TargetCommand, epilog="Example: reconciler render workload/shop/api --location byok-cluster")
@key_argument(required=False)
@click.option("--location", metavar="NAME", default="", help="The location, if several have such an engine.")
@click.option("--access", is_flag=True, help="Print the rights that the daemon needs on a cluster, as RBAC objects.")
@click.option("--namespace", metavar="NAME", default="reconciler", help="With --access: that of the ServiceAccount.")
@click.option("--account", metavar="NAME", default="reconciler", help="With --access: the ServiceAccount.")
@settings_option
def command(settings_file: Path, key: Key | None, location: str, access: bool, namespace: str, account: str) -> None:
    """Print the objects of a recorded workload as YAML, as they are applied at a location on a cluster.

    The data of Secrets are masked, and nothing is sent to the cluster. `reconciler eject` writes all of a location.
    """
    from reconciler.errors import UsageError
    from reconciler.render.objects import format_objects

    settings = load_settings_as_owner(settings_file)
    name, plugin = find_rendering(settings, location)
    if access:
        click.echo(format_objects(plugin.render_access(namespace, account)), nl=False)
        return
    if key is None:
        raise UsageError("name the KEY of a workload, or print the rights with --access")
    click.echo(_render(settings, name, plugin, key), nl=False)


def _render(settings: Settings, location: str, plugin: SupportsRendering, key: Key) -> str:
    from contextlib import closing

    from reconciler.errors import NotFoundError
    from reconciler.queries.existence import check_key
    from reconciler.render.objects import format_objects
    from reconciler.secrets.store import SecretStore

    records = read_records(settings)
    check_key(records, key)
    with closing(SecretStore(records, settings)) as secrets:
        rendered = list(plugin.render(settings, records, location, secrets.read, lambda other: other == key))
    objects = [item for resource in rendered if resource.key == key for item in resource.objects]
    if not objects:
        raise NotFoundError(f"{key} has no objects at {location}")
    return format_objects(plugin.mask(objects))


def find_rendering(settings: Settings, location: str) -> tuple[str, SupportsRendering]:
    """The location that is meant, and its plugin. Raises UsageError if there is none, or more than one."""
    from reconciler.engines.plugin import SupportsRendering, find_plugin
    from reconciler.errors import UsageError

    plugins = {name: find_plugin(bound.engine) for name, bound in sorted(settings.locations.items())}
    able = {name: plugin for name, plugin in plugins.items() if isinstance(plugin, SupportsRendering)}
    if location and location not in able:
        names = ", ".join(able) or "none"
        raise UsageError(f"{location} is no location on a cluster; those of the settings: {names}")
    if len(able) != 1 and not location:
        what = f"name one of them with --location: {', '.join(able)}" if able else "bind one to the engine kubernetes"
        raise UsageError(f"{len(able) or 'no'} locations of the settings are on clusters; {what}")
    name = location or next(iter(able))
    return name, able[name]
