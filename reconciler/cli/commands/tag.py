"""`reconciler tag`: set and remove tags of a manifest in Git."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reconciler.cli.manifest_changes import ChangeParameters, change_manifest, change_options
from reconciler.cli.target_arguments import TargetCommand, key_argument

if TYPE_CHECKING:
    from reconciler.model.key import Key


def _parse_tags(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str | None]:
    """Callback of tags to set (``team=web``) and to remove (``draft-``): the value of each, None to remove it."""
    tags: dict[str, str | None] = {}
    for text in value:
        name, is_set, tag_value = text.partition("=")
        if not is_set:
            name = text.removesuffix("-")
        if not name or (not is_set and name == text):
            raise click.BadParameter(f"{text!r}: write TAG=VALUE, or TAG- to remove it", ctx, param)
        tags[name] = tag_value if is_set else None
    return tags


@click.command(cls=TargetCommand, epilog="Example: reconciler tag workload/shop/api team=web draft-")
@key_argument()
@click.argument("tags", metavar="TAG=VALUE|TAG-...", nargs=-1, required=True, callback=_parse_tags)
@change_options
def command(key: Key, tags: dict[str, str | None], **parameters: Any) -> int:
    """Set tags of the manifest of KEY in Git; a hyphen after the name removes one.

    The whole tree that results is checked first. The plan is shown, and the change is committed to the branch of the
    source.
    """
    return change_manifest(key, ChangeParameters(**parameters), lambda _: {"tags": tags})
