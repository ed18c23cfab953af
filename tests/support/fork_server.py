"""Forks processes that begin with everything imported: `python -m tests.support.fork_server FD`, for `processes`.

A request comes with descriptors; a process forked for it leaves the server's loop and goes on as the main program, so
that it ends as an interpreter does. Where the descriptor is a socket that listens, each connection gets a server of its
own, forked from one that has imported everything; what a forked daemon starts of the reconciler is forked so, too
(`forked_program`).
"""

from __future__ import annotations

import atexit
import contextlib
import encodings
import fcntl
import gc
import importlib
import io
import marshal
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import reconciler
from reconciler.settings import load_settings

LIMIT = 1 << 20
"""Bytes of the longest request."""
DESCRIPTORS = 16
"""The most that come with a request."""

FORKED = ("reconciler.api", "reconciler.api.log_process", "reconciler.engines.host.dataplane.acme.order")
"""Programs that a daemon or the API starts as ``python -I -m MODULE``."""

LAZY = (
    "structlog",
    "watchfiles",
    "difflib",
    "getpass",
    "unicodedata",
    "pickle",
    "concurrent.futures.thread",
    "encodings.idna",
    "stringprep",
    "jsonschema",
    "jsonschema_rs",
    "referencing.jsonschema",
    "cryptography",
    "pyrage",
    "sqlite3",
    "asyncio.unix_events",
    "rich",
    "yaml",
    "pdb",
    "graphlib",
    "tempfile",
    "shlex",
    "traceback",
    "authlib.integrations.httpx_client",
    "cryptography.fernet",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.auto",
)
"""Modules that the reconciler or a library imports late. They may lie in a home of root, closed to other users."""


launcher: str | None = None
"""What forked processes start as Python, where servers are forked."""


def import_all() -> None:
    """Import all that a command or a daemon may need."""
    for module in pkgutil.walk_packages(reconciler.__path__, "reconciler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    codecs = [f"encodings.{each.name}" for each in pkgutil.iter_modules(encodings.__path__) if "mbcs" not in each.name]
    for name in (*LAZY, *codecs):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write("{org: acme, state: state, sources: [{name: main, url: x}], locations: {}}")
        file.flush()
        load_settings(Path(file.name))  # reads and compiles its schema


def fork_servers(listener: socket.socket) -> socket.socket:
    """In a forked process, the connection that it serves; SIGTERM ends this one, once it has waited for the others."""
    global launcher
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    folder = tempfile.mkdtemp()
    launcher = write_launcher(folder, listener)
    while True:
        try:
            link, _ = listener.accept()
            if peer_user(link) != os.geteuid():
                link.close()
                continue
        except SystemExit:
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.wait()  # so that what they and their children used is counted
            shutil.rmtree(folder)
            raise
        if not os.fork():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            listener.close()
            link.send(str(os.getpid()).encode())
            return link
        link.close()


def peer_user(link: socket.socket) -> int:
    """The user at the other end."""
    credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def write_launcher(folder: str, listener: socket.socket) -> str:
    """The path of a program in ``folder`` that is Python, but has what is ``FORKED`` forked by a server."""
    path = Path(folder, "python")
    python = sys.executable
    stand_in = Path(__file__).with_name("forked_program.py")
    programs = "|".join(f'"-I -m {module}"' for module in FORKED)
    path.write_text(
        f"""#!/bin/sh
case "$1 $2 $3" in
{programs}) exec {python} -I -S {stand_in} {listener.getsockname().hex()} "$@" ;;
esac
exec {python} "$@"
"""
    )
    path.chmod(0o755)
    return str(path)


def serve(link: socket.socket) -> dict[str, Any] | None:
    """Answer requests until the other side closes; in a forked process, the request that it is for."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, LIMIT, DESCRIPTORS)
        if not message:
            return None
        request: dict[str, Any] = marshal.loads(message)
        if "wait" in request:
            answer = {"code": _wait(link, request["wait"])}
        else:
            child = os.fork()
            if not child:
                link.close()
                _become(request, descriptors)
                return request
            answer = {"pid": child}
        for each in descriptors:
            os.close(each)
        link.send(marshal.dumps(answer))


def _wait(link: socket.socket, child: int) -> int:
    """The exit code of ``child``, which is killed when nobody waits for it any more."""
    ended = os.pidfd_open(child)
    waiting = select.poll()
    waiting.register(ended, select.POLLIN)
    waiting.register(link, select.POLLHUP)
    if ended not in dict(waiting.poll()):
        signal.pidfd_send_signal(ended, signal.SIGKILL)
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Take over descriptors, folder, environment and user of ``request``."""
    numbers: list[int] = request.get("numbers", [0, 1, 2])
    apart = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for number, descriptor in zip(numbers, apart, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    if request["user"] is not None:
        os.setgroups(request["groups"])
        os.setgid(request["user"])
        os.setuid(request["user"])
    _open_streams()
    if launcher is not None and request["user"] is None:
        sys.executable = launcher


def _open_streams() -> None:
    """The three streams as an interpreter opens them."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        raw = io.open(number, "wb" if number else "rb", buffering=0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115, UP020
        stream = io.TextIOWrapper(
            raw,
            errors="backslashreplace" if name == "stderr" else "strict",
            line_buffering=name == "stderr" or os.isatty(number),
            write_through=unbuffered and number > 0,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(words: list[str]) -> None:
    """Go on as ``python WORDS``: ``-m MODULE …`` or ``-c CODE …``."""
    form, program, *rest = words
    if form == "-m":
        sys.argv = [program, *rest]
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        sys.argv = ["-c", *rest]
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})


def end(words: list[str]) -> None:
    """Run the program and end as an interpreter does, but for giving back memory that the kernel takes anyway."""
    code = 0
    try:
        run(words)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 255)


def main() -> None:
    """Serve; in a forked process, be the program that was asked for."""
    link = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background has it ignored
    import_all()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be lost in forked processes"
    if link.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        link = fork_servers(link)
    request = serve(link)
    if request is not None:
        end(request["words"])


if __name__ == "__main__":
    main()
