"""The master process of HAProxy: starts it, finds it, and holds it by a descriptor; and its systemd unit.

A HAProxy of its own unit has a capability that the daemon lacks. Then /proc shows it to the daemon in part, or not at
all. So its master socket proves which process it is, and a descriptor of the kernel (pidfd) shows its end.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reconciler.engines.host.dataplane.haproxy.config import CONFIG, MASTER_SOCKET, PID
from reconciler.engines.host.runtimes import exit_watch, procfs
from reconciler.engines.host.runtimes.replicas_service import move_to_service
from reconciler.errors import EngineError
from reconciler.listing import list_paths
from reconciler.reasons import Reason

_CREDENTIALS = struct.Struct("3i")
_ALERT = "[ALERT]"
OUTPUT = "haproxy.log"
LARGEST_OUTPUT = 1 << 20
_SYSTEMD = Path("run/systemd/system")
_UNITS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")


class MasterProcess:
    """One process, never a later one of its number. Close it after use."""

    def __init__(self, pid: int) -> None:
        """Raises ProcessLookupError if there is none."""
        self.pid = pid
        self._proc = procfs.find_process(pid)
        try:
            self._descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError:
            # The kernel has no such descriptors.
            self._descriptor = -1

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        if self._descriptor < 0:
            return self._proc is not None and exit_watch.is_alive(self.pid, self._proc.start)
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return not poll.poll(0)

    def signal(self, number: int) -> None:
        """Send a signal to it, if it runs."""
        if self._descriptor >= 0:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._descriptor, number)
        elif self._proc is not None:
            procfs.signal_exactly(self._proc, number)

    def close(self) -> None:
        """Release the descriptor; the process goes on."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Setup(NamedTuple):
    """The location, and the numbers of the user and group that HAProxy runs as; None: those of the daemon.

    The systemd of the host below ``root`` may run it.
    """

    location: str
    user: tuple[int, int] | None = None
    root: Path = Path("/")


class ProxyUnit(NamedTuple):
    """The systemd unit of the HAProxy of a location, on the host whose files are below ``root``."""

    location: str
    root: Path = Path("/")

    @property
    def service(self) -> str:
        """The name of the service."""
        return f"reconciler-haproxy@{self.location}.service"

    @property
    def trigger(self) -> str:
        """The name of the unit that starts the service once there is a configuration; this one is enabled."""
        return f"reconciler-haproxy@{self.location}.path"

    @property
    def advice(self) -> str:
        """How to enable it."""
        return f"systemctl enable --now {self.trigger}"

    def is_enabled(self) -> bool:
        """Whether it is enabled, and systemd runs here.

        The link that `systemctl enable` makes decides, so a crash leaves nothing behind that is wrong.
        """
        links = (list_path / self.trigger for name in _UNITS for list_path in list_paths(self.root / name, "*.wants"))
        return self.has_systemd and any(map(os.path.lexists, links))

    @property
    def has_systemd(self) -> bool:
        """Whether systemd runs on this host."""
        return (self.root / _SYSTEMD).is_dir()


def get_peer_pid(connection: socket.socket) -> int:
    """The number of the process that listens at the other end of a local socket."""
    pid, _user, _group = _CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return int(pid)


def find_master(directory: Path) -> int | None:
    """The number of the HAProxy that runs in ``directory``; None if none does."""
    return _at_socket(directory) or _in_file(directory)


def find_lost(directory: Path) -> int | None:
    """As ``find_master``, of one whose socket and whose file are gone: looks at all processes."""
    masters = {pid for pid in procfs.list_pids() if _runs_in(pid, directory)}
    # A worker has the directory and the command line of its master.
    workers = {child for pid in masters for child in procfs.list_children(pid)}
    return min(masters - workers, default=None)


def retire_proxy(directory: Path, number: int = signal.SIGUSR1) -> None:
    """Let the HAProxy of a location end after its last connection, or at once with the signal SIGTERM.

    Without its configuration, its unit does not start it again.
    """
    with suppress(OSError):
        (directory / CONFIG).unlink(missing_ok=True)
    pid = find_master(directory)
    if pid is not None:
        with suppress(ProcessLookupError):
            master_process = MasterProcess(pid)
            master_process.signal(number)
            master_process.close()


def spawn_master(directory: Path, program: str) -> int:
    """Start ``program`` with the configuration in ``directory``; its number. Raises EngineError."""
    try:
        # With O_APPEND, HAProxy writes at the start again after `trim_output` has emptied the file.
        output = os.open(directory / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            started = subprocess.Popen(
                [program, "-W", "-S", f"unix@./{MASTER_SOCKET},mode,600", "-f", CONFIG, "-p", PID],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C at the terminal of the daemon must not end it.
                start_new_session=True,
            )
        finally:
            os.close(output)
    except OSError as error:
        raise EngineError(f"HAProxy cannot be started: {error.strerror}", reason=Reason.PROXY_FAILED) from None
    # Its workers follow: they are started by it.
    move_to_service(started.pid)
    # Its end is watched by its number, because an earlier daemon may have started it.
    started.returncode = 0
    return started.pid


def trim_output(directory: Path) -> None:
    """Empty the file of its messages if it is large; they are of use when it cannot be started."""
    path = directory / OUTPUT
    with suppress(OSError):
        if path.stat().st_size > LARGEST_OUTPUT:
            os.truncate(path, 0)


def last_alert(directory: Path) -> str:
    """The alert of the HAProxy that was started last."""
    with suppress(OSError):
        return first_alert((directory / OUTPUT).read_text(encoding="utf-8", errors="replace"))
    return "it ended"


def first_alert(text: str) -> str:
    """The first alert in the output of HAProxy, without its prefix; else the last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    alert = next((line for line in lines if line.startswith(_ALERT)), lines[-1] if lines else "it ended")
    return alert.partition(") : ")[2] or alert


def _at_socket(directory: Path) -> int | None:
    """Who listens at the master socket."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
                # One that hangs has a full queue: do not wait for it.
                connection.setblocking(False)
                connection.connect(f"/proc/self/fd/{descriptor}/{MASTER_SOCKET}")
                return get_peer_pid(connection)
        finally:
            os.close(descriptor)
    return None


def _in_file(directory: Path) -> int | None:
    """The process of the file with its number, if its socket was lost. A file with that of another process is old."""
    try:
        pid = int((directory / PID).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return pid if _runs_in(pid, directory) else None


def _runs_in(pid: int, directory: Path) -> bool:
    """Whether the process is a HAProxy of ``directory`` with a master."""
    try:
        own = Path(f"/proc/{pid}/cwd").readlink() == directory.resolve()
    except OSError:
        return False
    process_info = procfs.find_process(pid) if own else None
    alive = process_info is not None and process_info.alive
    return alive and MASTER_SOCKET in b" ".join(procfs.command_line(pid)).decode(errors="replace")
