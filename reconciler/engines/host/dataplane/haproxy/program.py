"""The installed program HAProxy: where it is, its version, and what it was built with."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache

import msgspec

from reconciler.engines.host.dataplane.protocol import Service

OLDEST = (2, 6)
"""The oldest version that adds and removes servers while it runs, without an experimental mode."""

SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where it is searched beside PATH, which often lacks the directories for administrators."""

_SECONDS = 10
_VERSION = re.compile(r"HAProxy version (\d+)\.(\d+)(\S*)")


class Program(msgspec.Struct, frozen=True):
    """An installed HAProxy. ``lua``: it can run scripts, so requests can wait for the first replica. ``tls``: it can
    serve certificates.
    """

    path: str
    version: tuple[int, int]
    text: str
    lua: bool
    tls: bool = True

    @property
    def usable(self) -> bool:
        """Whether it is new enough."""
        return self.version >= OLDEST

    @property
    def complete(self) -> bool:
        """Whether it does everything that the built-in data plane does."""
        return self.usable and self.lua


def find_program() -> Program | None:
    """The installed HAProxy; None if there is none. Blocks for some milliseconds at the first call for a file."""
    path = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:{SEARCH}")
    return _inspect(path, os.stat(path).st_mtime_ns) if path else None


@cache
def _inspect(path: str, _changed: int) -> Program | None:
    try:
        done = subprocess.run([path, "-vv"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout)
    if match is None:
        return None
    version = (int(match[1]), int(match[2]))
    text, tls = f"{match[1]}.{match[2]}{match[3]}", re.search(r"Built with \S*SSL", done.stdout) is not None
    return Program(path, version, text, "Built with Lua" in done.stdout, tls)


def limitations(service: Service, program: Program | None, *, outside: bool) -> Iterator[str]:
    """What ``program`` is not used for yet, or cannot do; ``outside``: there is an ingress."""
    if not outside:
        yield "The endpoint is one port of 127.0.0.1, without host names, TLS and routes: the location has no ingress."
    elif program is not None and not program.tls:
        yield "The ingress takes requests without TLS only: the installed HAProxy lacks OpenSSL."
    if program is not None and not program.lua:
        yield "Requests do not wait for the first replica, nor for the end of a hold: the installed HAProxy lacks Lua."
    if service.protocol == "grpc" and service.retries:
        yield "Requests are not tried again for a status of gRPC."
