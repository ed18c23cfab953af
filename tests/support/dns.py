"""A DNS server on this machine, over UDP."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

_LONGEST = 4096


class NameServer:
    """Answers for TXT records from ``texts`` (name → values), and for every other name that it does not exist.

    While ``is_silent`` it answers nothing. ``asked`` are the names of all questions.
    """

    def __init__(self) -> None:
        self.texts: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.is_silent = False
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def prove(self, domain: str, org: str = "acme") -> None:
        """Publish the record that proves ``domain``."""
        self.texts[f"_reconciler-challenge.{domain}"] = [f"org={org}"]

    def withdraw(self, domain: str) -> None:
        """Remove the record."""
        self.texts.pop(f"_reconciler-challenge.{domain}", None)

    def close(self) -> None:
        """Answer no more."""
        # A closed socket would leave the thread in its read.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                packet, client = self._socket.recvfrom(_LONGEST)
                if not packet:
                    continue
                answer = self._answer(dns.message.from_wire(packet))
                if not self.is_silent:
                    self._socket.sendto(answer.to_wire(), client)

    def _answer(self, question: dns.message.Message) -> dns.message.Message:
        answer = dns.message.make_response(question)
        [asked] = question.question
        name = asked.name.to_text(omit_final_dot=True)
        self.asked.append(name)
        if asked.rdtype == dns.rdatatype.TXT and (found := self.texts.get(name)):
            answer.answer.append(dns.rrset.from_text(asked.name, 1, "IN", "TXT", *(f'"{text}"' for text in found)))
        elif name not in self.texts:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        return answer


@contextlib.contextmanager
def name_server() -> Iterator[NameServer]:
    """A name server that ends with the block."""
    server = NameServer()
    try:
        yield server
    finally:
        server.close()
