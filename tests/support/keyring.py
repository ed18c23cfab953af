"""A real keyring of a desktop, without a desktop: GNOME's, on a bus of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.programs import tool
from tests.support.sandbox import eventually


@contextmanager
def unlocked_keyring(path: Path) -> Iterator[Mapping[str, str]]:
    """An empty keyring whose files are in ``path``: the variables by which programs find it."""
    asking = [tool("secret-tool", "libsecret-tools"), "lookup", "service", "none"]
    keyring = tool("gnome-keyring-daemon", "gnome-keyring")
    with session_bus(path) as variables:
        environ = {**os.environ, **variables}
        command = [keyring, "--unlock", "--components=secrets", "--foreground"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environ) as daemon:
            assert daemon.stdin is not None
            daemon.stdin.write(b"password")
            daemon.stdin.close()
            try:
                eventually(lambda: not subprocess.run(asking, env=environ, capture_output=True, check=False).stderr)
                yield variables
            finally:
                daemon.terminate()


@contextmanager
def session_bus(path: Path) -> Iterator[Mapping[str, str]]:
    """A bus on which there is nothing, and on which nothing begins by itself."""
    bus = tool("dbus-daemon", "dbus")
    path.mkdir(mode=0o700)
    (path / "bus.conf").write_text(
        "<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen><auth>EXTERNAL</auth>"
        '<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>'
        '<allow own="*"/></policy></busconfig>'
    )
    command = [bus, f"--config-file={path}/bus.conf", "--nofork", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        address = daemon.stdout.readline().strip()
        homes = dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME"), str(path))
        try:
            yield {**homes, "DBUS_SESSION_BUS_ADDRESS": address}
        finally:
            daemon.terminate()
