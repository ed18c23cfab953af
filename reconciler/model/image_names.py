"""The names of images without tag and digest, and the patterns that say which of them may be used."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_HUB = "docker.io"
_HUB_NAMES = frozenset({_HUB, f"index.{_HUB}", f"registry-1.{_HUB}"})
_LOCAL = "localhost"
"""In place of a registry: the image was built or loaded on the host."""
_ACCOUNT = re.compile(r"[a-z0-9]+(?:[-_]+[a-z0-9]+)*")
"""The first part of a name that has no registry: an account at Docker Hub."""
_OFFICIAL = re.compile(r"[a-z0-9]+(?:[-._]+[a-z0-9]+)*(?=[:@]|$)")
"""The name of an official image there."""


def full_name(image: str) -> str:
    """The image of a manifest with its registry, without tag and digest; "" for an image of the org or of the host."""
    name = image.partition("@")[0]
    if ":" in name[name.rfind("/") + 1 :]:
        name = name.rpartition(":")[0]
    registry, slash, repository = name.partition("/")
    if not registry or (registry == _LOCAL and slash):
        return ""
    if not slash or not ("." in registry or ":" in registry):
        registry, repository = _HUB, name
    registry = registry.lower()
    if registry in _HUB_NAMES:
        registry, repository = _HUB, repository if "/" in repository else f"library/{repository}"
    return f"{registry}/{repository}"


def with_registry(image: str) -> str:
    """``image`` with the registry that Docker and Kubernetes add to a short name; any other text stays as it is."""
    first, slash, _ = image.partition("/")
    if slash:
        return image if first == _LOCAL or not _ACCOUNT.fullmatch(first) else f"{_HUB}/{image}"
    return f"{_HUB}/library/{image}" if _OFFICIAL.match(image) else image


def is_allowed(name: str, patterns: Sequence[str]) -> bool:
    """Whether the full name ``name`` fits one of ``patterns`` of the setting ``images.allowed``; any if there is none.

    A pattern is HOST, HOST:PORT or one of them with a path. ``*`` stands for any part of a host name, but for no port,
    and for any text of a path. A host without a path stands for all that is there.
    """
    return not patterns or any(_compile_pattern(pattern).fullmatch(name) is not None for pattern in patterns)


def exact_hosts(patterns: Iterable[str]) -> frozenset[str]:
    """The hosts, with their ports, that ``patterns`` name without ``*``."""
    hosts = (pattern.partition("/")[0].lower() for pattern in patterns)
    return frozenset(host for host in hosts if "*" not in host)


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    host, _, path = pattern.partition("/")
    ends = "[^/:]*".join(map(re.escape, re.split(r"\*+", host.lower())))
    rest = ".*".join(map(re.escape, re.split(r"\*+", path or "*")))
    return re.compile(f"{ends}/{rest}")
