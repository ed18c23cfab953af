"""Becomes the wrapper of a container: a program of its own, run by its path and without imports of this package.

A process that is to be the subreaper of a container has to ask for that itself. The daemon has several threads, and a
child of it that ran Python between fork and exec could wait for ever for a lock that another thread held.

Arguments: two descriptors, for the report and with the environment (``NAME=VALUE`` separated by NUL); the limit of
processes; user and group, empty where it stays who it is; further groups, which only root can set; the shell and its
name. The report is the errno of what went wrong, and is closed empty where the shell runs.
"""

import ctypes
import errno
import os
import resource
import sys

SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS = 36, 38


def main(report: int, words: list[str]) -> None:
    """Set what only the process itself can set, and execute the shell. Raises OSError."""
    environ, processes, user, group, groups, shell, title = words
    with open(int(environ), "rb") as file:
        pairs = [pair.partition(b"=") for pair in file.read().split(b"\0") if pair]
    kernel = ctypes.CDLL(None)
    kernel.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.geteuid() == 0:
        os.setgroups([int(each) for each in groups.split(",") if each])
    if user:
        os.setgid(int(group))
        os.setuid(int(user))
    kernel.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Last, since the kernel refuses a user who has that many processes already, if the limit is there before.
    resource.setrlimit(resource.RLIMIT_NPROC, (int(processes), int(processes)))
    os.set_inheritable(report, False)
    os.execve(shell, [title], {name: value for name, _, value in pairs})


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2:])
    except Exception as error:  # noqa: BLE001 - a traceback would go into the file for the exit code
        os.write(int(sys.argv[1]), str(getattr(error, "errno", None) or errno.EINVAL).encode())
        sys.exit(1)
