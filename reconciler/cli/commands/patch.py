"""`reconciler patch`: change fields of a manifest in Git."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.manifest_changes import ChangeParameters, change_manifest, change_options
from reconciler.cli.target_arguments import TargetCommand, key_argument

if TYPE_CHECKING:
    from reconciler.model.key import Key


def _parse_patch(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any] | None:
    """Callback of an option that is a JSON merge patch; ``-`` reads it from standard input."""
    import msgspec

    if value is None:
        return None
    try:
        patch = msgspec.json.decode(sys.stdin.read() if value == "-" else value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"it is not JSON: {error}", ctx, param) from None
    if not isinstance(patch, dict):
        raise click.BadParameter("a merge patch is an object with the fields to change", ctx, param)
    return patch


@click.command(
    cls=TargetCommand, epilog="Example: reconciler patch workload/shop/api spec.containers.main.image=//image/api:2"
)
@key_argument()
@click.argument("fields", metavar="[FIELD=VALUE]...", nargs=-1)
@click.option("--patch", metavar="JSON", callback=_parse_patch, help="A JSON merge patch; - reads standard input.")
@change_options
def command(key: Key, fields: tuple[str, ...], patch: dict[str, Any] | None, **parameters: Any) -> int:
    """Change fields of the manifest of KEY in Git, once the whole tree that results was checked.

    FIELD is a path such as tags.team or spec.containers.main.env.COLOR: the item of a list goes by its name. += adds to
    a list, -= removes from it; null in a merge patch removes a field. Comments and format stay. The plan is shown.
    """
    from reconciler.documents.editing.patches import assign_fields, make_patch

    if bool(fields) == (patch is not None):
        raise click.UsageError("write either FIELD=VALUE or --patch JSON")
    change_parameters = ChangeParameters(**parameters)
    if patch is not None:
        return change_manifest(key, change_parameters, lambda _: patch)
    return change_manifest(
        key, change_parameters, lambda manifest: dict(make_patch(manifest, assign_fields(manifest, fields)))
    )
