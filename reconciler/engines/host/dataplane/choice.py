"""The data planes that there are, and which of them a location uses."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.dataplane.builtin import BuiltinDataPlane
from reconciler.engines.host.dataplane.haproxy.config import CONFIG
from reconciler.engines.host.dataplane.haproxy.discovery import Setup, retire_proxy
from reconciler.engines.host.dataplane.haproxy.plane import HaproxyDataPlane
from reconciler.engines.host.dataplane.haproxy.program import find_program
from reconciler.engines.host.dataplane.protocol import DataPlane, PlaneContext
from reconciler.engines.host.paths import find_directory
from reconciler.logs import log
from reconciler.settings import Settings

AUTO = "auto"
"""In the settings of a location, the default: HAProxy if the installed one does all that the built-in one does."""

HAPROXY = HaproxyDataPlane.name

DATAPLANE = "dataplane"
"""Name of the directory of the data plane below the directory of a location."""

_ACCOUNT = "haproxy"
"""The user that the package of HAProxy creates."""


class Choice(NamedTuple):
    """The data plane of a location, and a problem of the installed HAProxy that ``auto`` found."""

    name: str
    problem: str = ""


def choose_dataplane(settings: Settings, location: str) -> Choice:
    """The data plane of ``location``.

    Where a HAProxy serves already, ``auto`` stays with it while the program is installed, even if that fails now.
    Without the program, or with one that lacks what is needed, the built-in data plane takes over.
    """
    bound = settings.locations.get(location)
    name = bound.dataplane if bound is not None else BuiltinDataPlane.name
    if name != AUTO:
        return Choice(name)
    program = find_program()
    if program is None or not program.defect:
        return Choice(HAPROXY if program is not None else BuiltinDataPlane.name)
    # Its configuration exists until it is retired, also while it is down.
    if program.failure and os.path.lexists(proxy_directory(find_directory(settings.state, location)) / CONFIG):
        return Choice(HAPROXY, f"{program.defect}; HAProxy stays the data plane, and is tried again")
    return Choice(BuiltinDataPlane.name, f"HAProxy {program.text} is installed and not used: {program.defect}")


def make_dataplane(settings: Settings, location: str, root: Path, context: PlaneContext) -> DataPlane:
    """The data plane of ``location``, whose directory is ``root``."""
    chosen = choose_dataplane(settings, location)
    if chosen.problem:
        log().warning("dataplane_chosen", location=location, name=chosen.name, why=chosen.problem)
    if chosen.name == HAPROXY:
        return HaproxyDataPlane(
            proxy_directory(root), Setup(location, _find_proxy_user(settings.host.default_user)), context
        )
    return BuiltinDataPlane(context)


def end_former(current: DataPlane, root: Path) -> None:
    """End what another data plane left running at the location whose directory is ``root``; requests end first."""
    if current.name != HAPROXY:
        retire_proxy(proxy_directory(root))


def proxy_directory(root: Path) -> Path:
    """The directory in which HAProxy works, of the location whose directory is ``root``."""
    return root / DATAPLANE / HAPROXY


def _find_proxy_user(default: str) -> tuple[int, int] | None:
    """The numbers of user and group of HAProxy under a daemon that runs as root; None: those of the daemon."""
    if os.geteuid() != 0:
        return None
    for name in (_ACCOUNT, default):
        with suppress(KeyError):
            passwd = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
            return (passwd.pw_uid, passwd.pw_gid) if passwd.pw_uid else None
    return None
