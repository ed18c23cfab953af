"""Hooks of a container's life."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from reconciler.manifests.rules.registry import register_warning
from reconciler.model.finding import Flaw
from reconciler.model.key import Kind
from reconciler.model.kinds.workload import Workload, declared_ports

_WAITS = ("sleep", "wait", "drain", "timeout", "netstat", "/proc/net", "lsof")
"""Words in commands that wait, or that check for requests in flight."""
_SCRIPTS = (".sh", ".bash", ".py", ".pl", ".rb", ".js")


@register_warning("prestop-sleep", "docs/platform/workload.md#termination", Kind.WORKLOAD)
def check_prestop_hook(workload: Workload) -> Iterator[Flaw]:
    """A `preStop` hook waits some time, or until open requests are done.

    The hook replaces the 45 seconds that the platform waits otherwise. Until load balancers know that the replica ends,
    they still send it requests; if the hook ends at once, the program is stopped while it handles them.
    """
    for index, container in enumerate(workload.spec.containers):
        hook = container.lifecycle.pre_stop
        if hook is None or hook.exec is None or not declared_ports(container):
            continue
        if hook.exec.command and not _has_wait_command(hook.exec.command):
            at = ("spec", "containers", index, "lifecycle", "preStop", "exec", "command")
            yield Flaw(
                at,
                "this hook neither sleeps nor waits, so requests may still arrive when the container ends",
                f'sleep first: `["sh", "-c", "sleep 15; {_format_shell_command(hook.exec.command)}"]`',
            )


def _has_wait_command(command: tuple[str, ...]) -> bool:
    """Whether ``command`` waits for something, or is a script whose text is unknown."""
    text = " ".join(command)
    return any(word in text for word in _WAITS) or any(word.endswith(_SCRIPTS) for word in text.split())


def _format_shell_command(command: tuple[str, ...]) -> str:
    """``command`` for a shell, between double quotes; "…" if it is too long to show or has quotes itself."""
    line = command[2] if len(command) == 3 and command[1] == "-c" else shlex.join(command)
    return line if len(line) <= 60 and line.isprintable() and not {'"', "\\", "`"} & set(line) else "…"
