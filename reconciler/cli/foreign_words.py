"""Words and options of other tools, and what does the same here.

A table by meaning: spelling alone would lead from one that reads to one that changes things.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

FOREIGN_KINDS = {
    "all": "`reconciler get` lists all kinds",
    "configmap": "a secret of the type opaque or dictionary is mounted as a file",
    "cronjob": "a workload of the type cron; `reconciler get workload` lists them",
    "deployment": "`reconciler get workload` lists them",
    "event": "`reconciler events` lists them",
    "namespace": "`reconciler get gvc` lists them",
    "node": "`reconciler get location` lists the places where workloads run",
    "pod": "`reconciler top` lists the replicas",
    "pvc": "`reconciler get volumeset` lists them",
    "replica": "`reconciler top` lists them",
    "run": "`reconciler history` lists them",
    "service": "`reconciler get workload` lists them",
    "snapshot": "`reconciler snapshots` lists them",
}
"""A kind of another tool, or what has a command of its own → what to do; also as plural, and by a short name."""
_SHORT_KINDS = {
    "cj": "cronjob",
    "cm": "configmap",
    "deploy": "deployment",
    "ns": "namespace",
    "no": "node",
    "po": "pod",
}
_SHORT_KINDS |= {"ev": "event", "svc": "service"}

WORDS_BELOW = {
    ("secret", "decrypt"): "`reconciler secret edit FILE` shows the values in an editor; sops decrypts the file",
    ("secret", "get"): "`reconciler get secret` lists them; no command shows values that the records have",
    ("secret", "show"): "`reconciler secret edit FILE` shows the values in an editor; sops decrypts the file",
    ("secret", "view"): "`reconciler secret edit FILE` shows the values in an editor; sops decrypts the file",
    ("settings", "check"): "validate",
    ("settings", "show"): "the settings are a file: --settings, $RECONCILER_SETTINGS or /etc/reconciler/settings.yaml",
    ("volume", "list"): "`reconciler get volumeset` lists the volume sets, `reconciler snapshots` their snapshots",
    ("volume", "ls"): "`reconciler get volumeset` lists the volume sets, `reconciler snapshots` their snapshots",
    ("volume", "delete"): f"{_IN_GIT}: remove the volume set and commit; `reconciler command` deletes one volume",
    ("volume", "rm"): f"{_IN_GIT}: remove the volume set and commit; `reconciler command` deletes one volume",
    ("volume", "snapshot"): "`reconciler command volumeset/GVC/NAME createVolumeSnapshot snapshotName=N` takes one",
    ("volume", "restore"): "`reconciler command volumeset/GVC/NAME restoreVolume` does that",
}
"""A group and a word below it → a command of the group, or what to do."""

FOREIGN_OPTIONS = {
    "-A": "all GVCs are shown without --gvc",
    "-n": "--gvc",
    "-out": "--out",
    "--all-namespaces": "all GVCs are shown without --gvc",
    "--auto-approve": "what waits for an approval needs `reconciler approve DIGEST`",
    "--config": "--settings",
    "--context": "--settings",
    "--dry-run": "`reconciler plan` shows what would happen",
    "--field-selector": "--selector",
    "--filter": "--selector",
    "--head": "--limit",
    "--json": "--output",
    "--kubeconfig": "--settings",
    "--label": "--selector",
    "--max": "--limit",
    "--namespace": "--gvc",
    "--tail": "--limit",
}
"""An option of other tools → the option here, where a command has it, or what to do."""

ALIKE = 0.7
"""The likeness from which a word counts as a misspelled command."""


def explain_option(word: str, options: Sequence[str]) -> str:
    """``; …`` with the one of ``options`` that people mean by ``word``, else the nearest by spelling, else ""."""
    from reconciler.queries.existence import did_you_mean

    meant = FOREIGN_OPTIONS.get(word, "")
    if meant.startswith("-"):
        return f"; here it is {meant}" if meant in options else ""
    beginning = [option for option in options if option.startswith(word)]
    if not meant and len(beginning) != 1:
        beginning = [option for option in options if option.replace("-", "") == word.replace("-", "")]
    if not meant and beginning:
        return f"; did you mean {beginning[0]}?"
    return f"; {meant}" if meant else did_you_mean(word, options)


def explain_unknown_below(group: str, word: str, commands: Sequence[str]) -> str:
    """``; …`` with the one of the ``commands`` of ``group`` that people mean by ``word``, else all of them."""
    from reconciler.queries.existence import did_you_mean

    meant = WORDS_BELOW.get((group, word.lower()), "")
    if meant in commands:
        return f"; here it is `reconciler {group} {meant}`"
    hint = f"; {meant}" if meant else did_you_mean(word, commands, ALIKE)
    return hint or f"; there are: {', '.join(commands)}"


def explain_unknown(word: str, commands: Iterable[str]) -> str:
    """``; …`` with the command that people mean by ``word``, else the nearest by spelling, else ""."""
    from reconciler.queries.existence import did_you_mean

    meant = FOREIGN_WORDS.get(word.lower(), "")
    if meant in commands:
        return f"; here it is `reconciler {meant}`"
    return f"; {meant}" if meant else did_you_mean(word, commands, ALIKE)


def explain_unknown_kind(word: str, kinds: Sequence[str]) -> str:
    """``; …``: what to do, for a kind of another tool, else the nearest of ``kinds``, else all of them."""
    from reconciler.queries.existence import did_you_mean

    singular = _SHORT_KINDS.get(word, word.removesuffix("s"))
    known = FOREIGN_KINDS.get(singular)
    return f"; {known}" if known else did_you_mean(word, kinds) or f"; there are: {', '.join(kinds)}"
