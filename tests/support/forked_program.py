"""Stands for a program of the reconciler that is forked: `python -I -S forked_program.py ADDRESS -I -m MODULE ...`.

It hands its descriptors to the server at ``ADDRESS`` (`fork_server`) and ends as the forked process does; when it is
killed, so is that one. It imports next to nothing, since its own start is what it costs.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys

LIMIT = 1 << 20


def main(address: str, words: list[str]) -> None:
    """Have the program forked, wait for it, and end with its exit code or signal."""
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    link.connect(bytes.fromhex(address))
    link.recv(LIMIT)  # the number of the server
    numbers = [number for number in map(int, os.listdir("/proc/self/fd")) if _is_inherited(number)]
    request = {"words": words, "cwd": os.getcwd(), "environ": dict(os.environ), "user": None, "numbers": numbers}
    rights = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
    link.sendmsg([marshal.dumps(request)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    child = marshal.loads(link.recv(LIMIT))["pid"]
    for number in numbers:
        os.close(number)  # whoever reads or writes at the other end sees that the program closes it
    link.send(marshal.dumps({"wait": child}))
    code = marshal.loads(link.recv(LIMIT))["code"]
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_inherited(number: int) -> bool:
    try:
        return os.get_inheritable(number)
    except OSError:  # the one that listed them
        return False


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[3:])
