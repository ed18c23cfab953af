"""The relay notes each request: a body and the next request may arrive in one piece, and a request in several."""

from __future__ import annotations

import pytest

from tests.platform_cli.kit import RequestLines

SENT = (
    b"POST /org/acme/gvc/-query?limit=2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
    b"GET /org/acme/gvc HTTP/1.1\r\nHost: a\r\n\r\n"
    b"GET /shell HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    b"GET /typed HTTP/1.1\r\n\r\n"
)


@pytest.mark.parametrize("size", [1, 7, 64, len(SENT)])
def test_requests_are_found_however_their_bytes_are_divided(size: int) -> None:
    texts: list[str] = []
    lines = RequestLines(texts)
    for start in range(0, len(SENT), size):
        lines.feed(SENT[start : start + size])
    assert texts == ["POST /org/acme/gvc/-query?limit=2", "GET /org/acme/gvc", "GET /shell"]
