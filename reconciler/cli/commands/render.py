"""`reconciler render`: print the objects of a workload on a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.options import load_settings_as_owner, records_or_none, settings_option
from reconciler.cli.output.forms import Output, output_option, print_document
from reconciler.cli.target_arguments import TargetCommand, key_argument

if TYPE_CHECKING:
    from reconciler.engines.plugin import RenderedObjects, SupportsRendering
    from reconciler.model.key import Key
    from reconciler.records.store import Records
    from reconciler.settings import Settings


@click.command(cls=TargetCommand, epilog="Example: reconciler render workload/shop/api --location byok-cluster")
@key_argument(required=False)
@click.option("--location", metavar="NAME", default="", help="The location, if several have such an engine.")
@click.option("--access", is_flag=True, help="Print the rights that the daemon needs on a cluster, as RBAC objects.")
@click.option("--namespace", metavar="NAME", default="reconciler", help="With --access: that of the ServiceAccount.")
@click.option("--account", metavar="NAME", default="reconciler", help="With --access: the ServiceAccount.")
@output_option()
@settings_option
def command(settings_file: Path, key: Key | None, location: str, output: Output, access: bool, **names: str) -> None:
    """Print the objects of a workload as YAML, as they are applied at a location on a cluster.

    A workload that is not applied yet is read from the newest revision of its source. The data of Secrets are masked,
    and nothing is sent to the cluster. `reconciler eject` writes all of a location.
    """
    from reconciler.errors import UsageError

    if access and not location:
        _print_objects(output, _find_any_rendering().render_access(**names))
        return
    settings = load_settings_as_owner(settings_file)
    name, plugin = find_rendering(settings, location)
    if access:
        _print_objects(output, plugin.render_access(**names))
        return
    if key is None:
        raise UsageError("name the KEY of a workload, or print the rights with --access")
    _print_objects(output, _render(settings, name, plugin, key))


def _print_objects(output: Output, objects: Sequence[Mapping[str, Any]]) -> None:
    """Print ``objects`` as documents that kubectl takes, or below ``items`` of a list of its kind."""
    from reconciler.render.objects import format_objects

    if output.form in ("text", "wide", "yaml"):
        click.echo(format_objects(objects), nl=False)
    else:
        print_document(output, {"apiVersion": "v1", "kind": "List", "items": list(objects)}, "items")


def _render(settings: Settings, location: str, plugin: SupportsRendering, key: Key) -> Sequence[Mapping[str, Any]]:
    from reconciler.errors import NotFoundError

    records = records_or_none(settings)
    is_applied = records.applied.at(key, location) is not None
    rendered = (_render_applied if is_applied else _render_planned)(settings, records, location, plugin, key)
    objects = [item for resource in rendered if resource.key == key for item in resource.objects]
    if not objects:
        raise NotFoundError(f"{key} has no objects at {location}")
    return plugin.mask(objects)


def _render_applied(
    settings: Settings, records: Records, location: str, plugin: SupportsRendering, key: Key
) -> list[RenderedObjects]:
    from contextlib import closing

    from reconciler.secrets.store import SecretStore

    with closing(SecretStore(records, settings)) as secrets:
        return list(plugin.render(settings, records, location, secrets.read, lambda other: other == key))


def _render_planned(
    settings: Settings, records: Records, location: str, plugin: SupportsRendering, key: Key
) -> list[RenderedObjects]:
    """The objects of ``key`` by the newest revision of its source. Raises NotFoundError if none has it there."""
    from reconciler.errors import NotFoundError
    from reconciler.queries.existence import check_key
    from reconciler.review.plan import find_planned_key

    planned = find_planned_key(settings, records, key)
    if planned is None:
        check_key(records, key)
        raise NotFoundError(
            f"{key} has no objects at {location}: it is not applied there, and no source wants it there"
        )
    click.echo(
        f"{key} is not applied at {location} yet; this is {planned.revision}, where names of Secrets end otherwise",
        err=True,
    )
    return list(plugin.render_planned(settings, records, location, planned.steps, lambda other: other == key))


def _find_any_rendering() -> SupportsRendering:
    """An engine for clusters: the rights that it needs depend on no settings."""
    from reconciler.engines.plugin import SupportsRendering, list_plugins

    return next(plugin for plugin in list_plugins() if isinstance(plugin, SupportsRendering))


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
