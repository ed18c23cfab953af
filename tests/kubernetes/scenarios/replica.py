"""The program of a replica on a host: it does what its script says, and what a file says while it runs.

    python -c PROGRAM FILE

``TEST_SCRIPT`` is as for containers of the clusters of the tests: ``exit=3 exit_after=0.5``. The file has the same
words, and ``hang`` and ``end`` for programs that began before their time: ``ready=false hang=17.5 end=3@17.5``. By
``use=0.09`` they use so much of a core.
"""

import contextlib
import os
import signal
import socket
import sys
import time
from typing import Any

BEGAN = time.monotonic()


def read_words(text: str) -> dict[str, str]:
    """``a=1 b=2`` as a mapping."""
    return dict(word.partition("=")[::2] for word in text.split())


def read_script() -> dict[str, str]:
    """What it shall do now."""
    words = read_words(os.environ.get("TEST_SCRIPT", ""))
    with contextlib.suppress(OSError), open(sys.argv[1]) as file:
        words.update(read_words(file.read()))
    return words


def is_ready(script: dict[str, str]) -> bool:
    """What its readiness probe finds."""
    late = time.monotonic() - BEGAN >= float(script.get("ready_after", 0))
    return late and script.get("ready", "true") == "true"


def end_if_due(script: dict[str, str]) -> None:
    """End, if that is what it shall do now."""
    code, _, at = script.get("end", "").partition("@")
    if code and float(at) > BEGAN:
        sys.exit(int(code))
    if "exit" in script and time.monotonic() - BEGAN >= float(script.get("exit_after", 0.05)):
        sys.exit(int(script["exit"]))


def use_cpu(share: float, seconds: float) -> None:
    """Use ``share`` of a core for the ``seconds`` that went by since the last time."""
    end = time.process_time() + share * seconds
    while time.process_time() < end:
        pass


def stop(*_: Any) -> None:
    """Obey SIGTERM after a while."""
    script = read_script()
    time.sleep(float(script.get("stop_after", 0)))
    os._exit(int(script.get("stop_code", 0)))


def answer(connection: socket.socket) -> None:
    """Answer one probe."""
    with connection:
        connection.settimeout(1.0)
        path, script = connection.recv(4096).split()[1:2], read_script()
        hangs = float(script.get("hang", 0)) > BEGAN
        good = not hangs if path == [b"/alive"] else is_ready(script)
        connection.sendall(b"HTTP/1.0 %d -\r\nContent-Length: 0\r\n\r\n" % (200 if good else 500))


def main() -> None:
    """Listen at ``PORT``, if there is one, until the script ends it."""
    signal.signal(signal.SIGTERM, stop)
    print(read_script().get("log", "started"), flush=True)
    port = os.environ.get("PORT")
    server = socket.create_server(("", int(port))) if port else None
    last = BEGAN
    while True:
        script, now = read_script(), time.monotonic()
        end_if_due(script)
        use_cpu(float(script.get("use", 0)), min(now - last, 0.2))
        last = now
        if server is None:
            time.sleep(0.05)
            continue
        server.settimeout(0.05)
        with contextlib.suppress(OSError):
            answer(server.accept()[0])


main()
