"""Becomes the wrapper of a container: a separate program, run by its path, without imports of this package.

The subreaper of a container must request that role itself. The daemon has several threads, and Python code between fork
and exec could wait forever for a lock of another thread.

Arguments: two descriptors, for the report and for the environment (``NAME=VALUE`` separated by NUL); the limit of
processes; user and group, empty to stay the same; further groups, which only root can set; the shell and its name. The
report is the errno of a failure, and is closed empty once the shell runs.
"""

import ctypes
import errno
import os
import resource
import sys

SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS = 36, 38
SIGNALS = 65


def main(report: int, words: list[str]) -> None:
    """Set what only the process itself can set, and execute the shell. Raises OSError."""
    environ, processes, user, group, groups, shell, title = words
    with open(int(environ), "rb") as file:
        pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
    kernel = ctypes.CDLL(None)
    kernel.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.geteuid() == 0:
        os.setgroups([int(text) for text in groups.split(",") if text])
    if user:
        os.setgid(int(group))
        os.setuid(int(user))
    kernel.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # The image of a program has its secrets; nobody may raise this limit again.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Last, because under this limit the kernel refuses a change to a user who already has that many processes.
    resource.setrlimit(resource.RLIMIT_NPROC, (int(processes), int(processes)))
    # A program would inherit what Python ignores (SIGPIPE, SIGXFSZ) and what the daemon was started with. The module
    # `signal` would take as long to import as all else here.
    for number in range(1, SIGNALS):
        kernel.signal(number, None)
    os.set_inheritable(report, False)
    os.execve(shell, [title], {name: value for name, _, value in pairs})


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2:])
    except Exception as error:  # noqa: BLE001 - a traceback would go into the file for the exit code
        os.write(int(sys.argv[1]), str(getattr(error, "errno", None) or errno.EINVAL).encode())
        sys.exit(1)
