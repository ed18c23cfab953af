"""Becomes the program of a session: a separate program, run by its path, without imports of this package.

Only the process itself can join a mount namespace, take a terminal and give up its rights. The daemon has several
threads, and Python code between fork and exec could wait forever for a lock of another thread.

Arguments: three descriptors: the gate, which opens when a byte arrives; the environment (``NAME=VALUE`` separated by
NUL); a mount namespace, or -1. Then the main process of the container; "tty" or ""; user and group, empty to stay the
same; further groups, which only root can set; the working directory; the program and its arguments.
"""

import ctypes
import errno
import fcntl
import os
import resource
import sys
import termios
import warnings  # noqa: F401 - os.execvpe imports it, when the container's user may not read it any more

CAPBSET_DROP, SET_NO_NEW_PRIVS = 24, 38
CAPABILITIES = 64
SIGNALS = 65
OWN, NOT_PERMITTED, NOT_FOUND = 125, 126, 127
"""Exit codes: this program failed, the wanted program may not be executed, there is none."""
ABSENT = (errno.ENOENT, errno.ENOTDIR)


def main(gate: int, environ: int, namespace: int, words: list[str]) -> None:
    """Set what only the process itself can set, and execute the program. Raises OSError."""
    pid, terminal, user, group, groups, directory, *argv = words
    if not os.read(gate, 1):
        sys.exit(OWN)
    with open(environ, "rb") as file:
        pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
    limits = limits_of(pid)
    processes = limits.pop(resource.RLIMIT_NPROC)
    bounding = bounding_of(pid)
    kernel = ctypes.CDLL(None, use_errno=True)
    if namespace >= 0 and kernel.setns(namespace, 0):
        raise OSError(ctypes.get_errno(), "its file systems cannot be reached")
    os.chdir(directory)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for which, limit in limits.items():
        set_limit(which, limit)
    for capability in range(CAPABILITIES):
        if not bounding >> capability & 1:
            kernel.prctl(CAPBSET_DROP, capability, 0, 0, 0)
    if user:
        os.setgroups([int(text) for text in groups.split(",") if text])
        os.setgid(int(group))
        os.setuid(int(user))
    kernel.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # The program would inherit what Python ignores (SIGPIPE, SIGXFSZ) and what the caller was started with. The module
    # `signal` would take as long to import as all else here.
    for number in range(1, SIGNALS):
        kernel.signal(number, None)
    # Last, because under this limit the kernel refuses a change to a user who already has that many processes.
    set_limit(resource.RLIMIT_NPROC, processes)
    execute_program(argv, {name: value for name, _, value in pairs})


def limits_of(pid: str) -> dict[int, tuple[int, int]]:
    """The soft and hard value of each limit of a process, which the kernel lists by their numbers."""
    with open(f"/proc/{pid}/limits", encoding="ascii") as file:
        values = [line[25:].split()[:2] for line in file.read().splitlines()[1:]]
    return {which: (value_of(soft), value_of(hard)) for which, (soft, hard) in enumerate(values)}


def bounding_of(pid: str) -> int:
    """The capabilities that the processes of a container can have at most, as bits."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        return int(next(line for line in file if line.startswith("CapBnd:")).split()[1], 16)


def value_of(text: str) -> int:
    """The number of a limit."""
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)


def set_limit(which: int, limit: tuple[int, int]) -> None:
    """Take over a limit of the container, as far as this process may."""
    try:
        resource.setrlimit(which, limit)
    except (OSError, ValueError):
        own = resource.getrlimit(which)[1]
        resource.setrlimit(which, (limit[0] if 0 <= limit[0] <= own else own, own))


def execute_program(argv: list[str], environment: dict[bytes, bytes]) -> None:
    """Become the program; if that fails, exit as a shell would."""
    try:
        os.execvpe(argv[0], argv, environment)
    except OSError as error:
        os.write(2, os.fsencode(f"{argv[0]}: {'not found' if error.errno in ABSENT else error.strerror}\n"))
        sys.exit(NOT_FOUND if error.errno in ABSENT else NOT_PERMITTED)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    except Exception as error:  # noqa: BLE001 - the text of another exception could contain the environment
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        os.write(2, f"the program cannot be started: {reason}\n".encode())
        sys.exit(OWN)
