"""Processes of their own for a test of neighbours: a server, a client that asks steadily, a flood, and a busy loop."""

from __future__ import annotations

import selectors
import socket
import sys
import time

REQUEST = b"GET / HTTP/1.1\r\nHost: web\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PROBES = 100
"""Requests a second of the client that asks steadily."""


def serve() -> None:
    """Answer each request at once; prints the port first."""
    selector, server = selectors.DefaultSelector(), socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(server.getsockname()[1], flush=True)
    selector.register(server, selectors.EVENT_READ)
    while True:
        for selector_key, _ in selector.select():
            if selector_key.fileobj is server:
                selector.register(server.accept()[0], selectors.EVENT_READ)
                continue
            client = selector_key.fileobj
            assert isinstance(client, socket.socket)
            try:
                asked = client.recv(65_536)
                client.sendall(ANSWER if asked else b"")
            except ConnectionError:
                asked = b""
            if not asked:
                selector.unregister(client)
                client.close()


def probe(port: int, seconds: float) -> None:
    """Ask at a steady rate on one connection; prints the milliseconds of each answer, -1 without one."""
    start, count = time.monotonic(), 0
    client = socket.create_connection(("127.0.0.1", port))
    while (due := start + count / PROBES) < start + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        began, count = time.monotonic(), count + 1
        client.sendall(REQUEST)
        answer = client.recv(65_536)
        print(1000 * (time.monotonic() - began) if b" 200 " in answer else -1)
        if b"close" in answer.lower() or not answer:
            client = socket.create_connection(("127.0.0.1", port))


def flood(port: int, seconds: float, rate: float) -> None:
    """Send requests at ``rate`` a second, each on a connection of its own; prints how many got which status."""
    selector, start, count, statuses = selectors.DefaultSelector(), time.monotonic(), 0, dict[str, int]()
    while (now := time.monotonic()) < start + seconds:
        while now >= start + count / rate:
            count += 1
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(REQUEST)
            selector.register(client, selectors.EVENT_READ)
        for each, _ in selector.select(timeout=1 / rate):
            done = each.fileobj
            assert isinstance(done, socket.socket)
            status = done.recv(65_536)[9:12].decode() or "none"
            statuses[status] = statuses.get(status, 0) + 1
            selector.unregister(done)
            done.close()
    print(statuses)


def spin() -> None:
    """Use a processor."""
    while True:
        pass


if __name__ == "__main__":
    globals()[sys.argv[1]](*(int(each) if each.isdigit() else float(each) for each in sys.argv[2:]))
