"""Words of other tools, and the command that does the same here.

A table by meaning: spelling alone would lead from one that reads to one that changes things.
"""

from __future__ import annotations

from collections.abc import Iterable

_IN_GIT = "what runs is what Git has"
_SCALE = "reconciler patch KEY spec.defaultOptions.autoscaling.minScale=3, or edit the manifest"

FOREIGN_WORDS = {
    "alias": "completion",
    "annotate": "tag",
    "attach": "exec",
    "bash": "exec",
    "check": "validate",
    "compose": "convert",
    "console": "exec",
    "cp": f"{_IN_GIT}: put files into a secret or a volume",
    "create": f"{_IN_GIT}: write a manifest and commit it; `reconciler explain` has the fields, `init` an example",
    "delete": f"{_IN_GIT}: remove the manifest and commit",
    "deploy": "apply",
    "destroy": f"{_IN_GIT}: remove the manifests and commit",
    "disable": "suspend",
    "enable": "resume",
    "expose": f"{_IN_GIT}: set `ports` and the firewall of the workload, or write a domain",
    "follow": "logs",
    "forget": "orphan",
    "graph": "plan",
    "inspect": "describe",
    "kill": "restart",
    "label": "tag",
    "lint": "validate",
    "list": "get",
    "ls": "get",
    "migrate": "convert",
    "new": "init",
    "output": "get",
    "pause": "suspend",
    "port-forward": "`reconciler top` has the port of each replica on this host",
    "ps": "top",
    "reconcile": "sync",
    "refresh": "sync",
    "remove": f"{_IN_GIT}: remove the manifest and commit",
    "revert": "rollback",
    "rm": f"{_IN_GIT}: remove the manifest and commit",
    "rollout": "`reconciler describe KEY` shows a rollout, `history` the past ones; `restart` and `rollback` act",
    "rules-list": "rules",
    "scale": _SCALE,
    "set": "patch",
    "shell": "exec",
    "show": "describe",
    "sources": "get",
    "ssh": "exec",
    "start": "`reconciler up` runs a directory here, `reconciler resume` ends a suspension",
    "stat": "get",
    "state": "get",
    "stats": "top",
    "stop": "`reconciler down` ends what `up` runs; to stop a workload, set spec.defaultOptions.suspend in Git",
    "tail": "logs",
    "tree": "get",
    "undo": "rollback",
    "unpause": "resume",
    "update": f"{_IN_GIT}: commit the new manifest; `reconciler patch` and `edit` do that for one",
    "upgrade": f"{_IN_GIT}: commit the new image",
    "wait": "`reconciler apply --wait` returns when all is healthy",
    "watch": "`reconciler events --follow`, `reconciler logs --follow`",
}
"""A word → a command, or what to do."""

ALIKE = 0.7
"""The likeness from which a word counts as a misspelled command."""


def explain_unknown(word: str, commands: Iterable[str]) -> str:
    """``; …`` with the command that people mean by ``word``, else the nearest by spelling, else ""."""
    from reconciler.queries.existence import did_you_mean

    meant = FOREIGN_WORDS.get(word.lower(), "")
    if meant in commands:
        return f"; here it is `reconciler {meant}`"
    return f"; {meant}" if meant else did_you_mean(word, commands, ALIKE)
