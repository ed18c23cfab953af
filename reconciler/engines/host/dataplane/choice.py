"""The data planes that there are, and which of them a location uses."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

from reconciler.engines.host.dataplane.builtin import BuiltinDataPlane
from reconciler.engines.host.dataplane.haproxy.discovery import Setup, retire
from reconciler.engines.host.dataplane.haproxy.plane import HaproxyDataPlane
from reconciler.engines.host.dataplane.haproxy.program import find_program
from reconciler.engines.host.dataplane.protocol import DataPlane, PlaneContext
from reconciler.logs import log
from reconciler.settings import Settings

AUTO = "auto"
"""In the settings of a location, the default: HAProxy if the installed one does all that the built-in one does."""

HAPROXY = HaproxyDataPlane.name

DATAPLANE = "dataplane"
"""Name of the directory of the data plane below the directory of a location."""

_ACCOUNT = "haproxy"
"""The user that the package of HAProxy creates."""


def dataplane_of(settings: Settings, location: str) -> str:
    """The name of the data plane of ``location``."""
    bound = settings.locations.get(location)
    name = bound.dataplane if bound is not None else BuiltinDataPlane.name
    if name != AUTO:
        return name
    program = find_program()
    return HAPROXY if program is not None and not program.defect else BuiltinDataPlane.name


def unused_program(settings: Settings, location: str) -> str:
    """Why ``auto`` does not use the installed HAProxy at ``location``; "" if it does, or if none is installed."""
    bound = settings.locations.get(location)
    program = find_program() if bound is not None and bound.dataplane == AUTO else None
    if program is None or not program.defect:
        return ""
    return f"HAProxy {program.text} is installed and not used: {program.defect}"


def make_dataplane(settings: Settings, location: str, root: Path, context: PlaneContext) -> DataPlane:
    """The data plane of ``location``, whose directory is ``root``."""
    if dataplane_of(settings, location) == HAPROXY:
        return HaproxyDataPlane(proxy_directory(root), Setup(location, _user(settings.host.default_user)), context)
    if found := unused_program(settings, location):
        log().warning("the built-in data plane is used", location=location, why=found)
    return BuiltinDataPlane(context)


def end_former(current: DataPlane, root: Path) -> None:
    """End what another data plane left running at the location whose directory is ``root``; requests end first."""
    if current.name != HAPROXY:
        retire(proxy_directory(root))


def proxy_directory(root: Path) -> Path:
    """The directory in which HAProxy works, of the location whose directory is ``root``."""
    return root / DATAPLANE / HAPROXY


def _user(default: str) -> tuple[int, int] | None:
    """The numbers of user and group of HAProxy under a daemon that runs as root; None: those of the daemon."""
    if os.geteuid() != 0:
        return None
    for name in (_ACCOUNT, default):
        with suppress(KeyError):
            found = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
            return (found.pw_uid, found.pw_gid) if found.pw_uid else None
    return None
