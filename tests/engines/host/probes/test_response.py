"""Heads of HTTP responses, as they arrive in parts."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.engines.host.probes.response import HEAD_LINES, LINE, Head, ProbeError, parse_head

INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
HEAD = b"HTTP/1.1 302 Found\r\nLocation: /a\r\nContent-Length:2\r\n\r\n"


@given(st.sampled_from([b"", INTERIM, INTERIM * 2]), st.sampled_from([HEAD, HEAD.replace(b"\r", b"")]))
@example(b"", b"HTTP/1.1 200\n\n")
def test_a_head_is_complete_with_its_last_byte(before: bytes, head: bytes) -> None:
    whole = before + head
    for size in range(len(whole)):
        assert parse_head(whole[:size]) is None
    parsed = parse_head(whole + b"ok")
    assert parsed is not None
    assert parsed.size == len(whole)
    if head != b"HTTP/1.1 200\n\n":
        assert parsed == Head(302, {"location": "/a", "content-length": "2"}, len(whole))


@pytest.mark.parametrize("before", [b"", INTERIM])
@pytest.mark.parametrize(
    ("received", "message"),
    [
        (b"220 mail.example.com ESMTP\r\n", "no HTTP answer"),
        (b"HTTP/2 200\r\n\r\n", "no HTTP answer"),
        (b"HTTP/1.1 200 " + b"x" * LINE, "an HTTP answer with too long a line"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * (HEAD_LINES + 1), "an HTTP answer with too many headers"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * HEAD_LINES + b"\r\n", "an HTTP answer with too many headers"),
    ],
    ids=["SMTP", "HTTP/2", "line", "headers", "headers and an end"],
)
def test_what_cannot_become_a_head_is_refused_at_once(before: bytes, received: bytes, message: str) -> None:
    with pytest.raises(ProbeError, match=message):
        parse_head(before + received)


@pytest.mark.parametrize(
    ("status", "length", "unread"),
    [
        (200, "7", 7),
        (200, "90000000", 10_240),
        (200, "many", 10_240),
        (200, "", 10_240),
        (200, "9" * 5000, 10_240),
        (204, "", 0),
        (304, "7", 0),
    ],
)
def test_no_more_of_a_body_is_read_than_servers_expect(status: int, length: str, unread: int) -> None:
    assert Head(status, {"content-length": length}, 0).unread == unread
