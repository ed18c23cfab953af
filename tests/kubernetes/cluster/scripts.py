"""What containers do that run nowhere: by its script one is ready, fails, ends and logs."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

ANNOTATION = "test.reconciler/script"
VARIABLE = "TEST_SCRIPT"


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The life of a container. Its seconds are real, whatever the pace of the kubelet."""

    pull: str = ""
    """Why the image cannot be pulled; empty: it can."""
    ready: bool = True
    ready_after: float = 0.0
    started: bool = True
    """What the startup probe finds."""
    exit: int | None = None
    """It ends by itself with this exit code."""
    exit_after: float = 0.05
    reason: str = ""
    """Of its end, such as OOMKilled; empty: Completed or Error."""
    message: str = ""
    """Its termination message."""
    stop_after: float = 0.0
    """How long it takes to end after SIGTERM; beyond its grace period it is killed."""
    stop_code: int = 0
    log: str = ""
    """Lines that it logs when it starts."""


def parse_script(text: str) -> Script:
    """``exit=3 exit_after=0.5 reason=OOMKilled`` as a script; raises msgspec.ValidationError."""
    pairs = dict(word.partition("=")[::2] for word in text.split())
    return msgspec.convert(pairs, Script, strict=False)


class Scripts:
    """The scripts of a cluster: those that a test sets, then those that a pod brings, then the default."""

    def __init__(self) -> None:
        self._set: list[tuple[str, str, Script]] = []

    def set(self, pod: str, script: Script, container: str = "*") -> None:
        """Let the containers of pods like ``NAMESPACE/NAME`` (a glob) follow ``script``; the newest wins."""
        self._set.insert(0, (pod, container, script))

    def clear(self) -> None:
        """Forget all that was set."""
        self._set.clear()

    def find(self, pod: Mapping[str, Any], container: Mapping[str, Any], until_done: bool = False) -> Script:
        """The script of one container of ``pod``; with ``until_done`` its default is to end with success."""
        metadata, name = pod["metadata"], container["name"]
        place = f"{metadata['namespace']}/{metadata['name']}"
        for pods, containers, script in self._set:
            if fnmatchcase(place, pods) and fnmatchcase(name, containers):
                return script
        annotations = metadata.get("annotations") or {}
        variables = {each["name"]: each.get("value", "") for each in container.get("env") or ()}
        for text in (annotations.get(f"{ANNOTATION}.{name}"), annotations.get(ANNOTATION), variables.get(VARIABLE)):
            if text is not None:
                return parse_script(text)
        return Script(exit=0) if until_done else Script()
