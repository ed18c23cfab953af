"""Rules between the containers of a workload."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_rule, register_warning
from reconciler.manifests.rules.text import quote_text
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Workload


@register_warning("command-words", "docs/platform/workload.md#containers", Kind.WORKLOAD)
def check_single_command(workload: Workload) -> Iterator[Flaw]:
    """The `command` of a container is one program; its arguments are in `args`.

    The text is the name of a program as a whole, spaces included: no shell reads it, so such a program is not found.
    """
    for index, container in enumerate(workload.spec.containers):
        program, *words = container.command.split() or [""]
        if words and ("/" not in program or words[0].startswith("-")):
            at = ("spec", "containers", index, "command")
            advice = f"write `command: {program}` and the rest as `args`, a list"
            yield Flaw(at, "the whole text is the name of one program, which is not found", advice)


@register_rule("container-name-unique", "docs/platform/workload.md#container-names", Kind.WORKLOAD)
def unique_names(workload: Workload) -> Iterator[Flaw]:
    """No two containers of a workload have the same name.

    Containers reach each other by name, and commands that override a container for one run select it by name.
    """
    containers = workload.spec.containers
    if len(containers) < 2:
        return
    first: dict[str, int] = {}
    for index, container in enumerate(containers):
        earlier = first.setdefault(container.name, index)
        if earlier != index and container.name:
            yield Flaw(
                ("spec", "containers", index, "name"),
                f"another container of this workload is called {quote_text(container.name)} already",
                "give each container a name of its own",
                also=(("spec", "containers", earlier, "name"),),
            )
