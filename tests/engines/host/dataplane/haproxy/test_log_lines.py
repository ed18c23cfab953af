"""What is read in lines of HAProxy, and that no other line raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.host.dataplane.haproxy.config import SELF
from reconciler.engines.host.dataplane.haproxy.log_socket import ProxyLogLine, parse_line
from reconciler.model.key import Key, Kind

KEY = Key(Kind.WORKLOAD, "shop", "web")
_WORDS = st.sampled_from(
    [
        "request",
        "hold",
        "shop:web",
        "a:b:8080",
        "_none",
        "_",
        ":",
        "web-0",
        SELF,
        "<NOSRV>",
        "-1",
        "0",
        "503",
        "-",
        "9" * 400,
    ]
)
_NEAR = st.lists(st.one_of(_WORDS, st.text(max_size=5)), max_size=12).map(lambda words: " ".join(words).encode())


def test_a_line_is_about_a_request_that_waits_or_that_ended() -> None:
    assert parse_line(b"hold shop:web") == ProxyLogLine(KEY, waits=True)
    assert parse_line(b"hold shop:web:8080") == ProxyLogLine(KEY, waits=True)
    measured = parse_line(b"request shop:web web-0 200 1 2 3 GET - /path")
    assert measured == ProxyLogLine(KEY, replica="web-0", milliseconds=6.0)
    assert parse_line(b"request shop:web web-0 200 1 -1 -1 GET - /path") == ProxyLogLine(KEY)
    refused = parse_line(b"request shop:web <NOSRV> 503 1 -1 -1 GET an id /path")
    assert refused is not None
    assert refused.error.startswith("503 GET /path: ")
    assert refused.error.endswith("(request an id)")
    assert not refused.replica


@pytest.mark.parametrize(
    "line",
    [
        f"request shop:web web-0 200 0 0 {'9' * 400} GET - /",
        f"request shop:web web-0 200 0 0 {'9' * 5000} GET - /",
        f"request shop:web web-0 {'5' * 400} 0 0 0 GET id /",
        "request shop:web web-0 200 0 0 ٣ GET - /",
        "request shop:web web-0 200 0 0 1_0 GET - /",
        "request shop:web web-0 200 0 0",
        "request shop:web web-0 200",
        "request shop web-0 200 0 0 0 GET - /",
        "request shop:_zz web-0 200 0 0 0 GET - /",
        "request shop:web _ff 200 0 0 0 GET - /",
        "request _none <NOSRV> 404 0 -1 -1 GET id /",
        "request",
        "hold",
        "hold :::",
        "hold _e9:_e9",
        "",
        "nothing",
    ],
)
def test_a_line_that_cannot_be_read_is_none(line: str) -> None:
    found = parse_line(line.encode())
    assert found is None or found.key != KEY


@given(st.one_of(_NEAR, st.binary(max_size=300)))
def test_no_line_raises(line: bytes) -> None:
    found = parse_line(line)
    assert found is None or 0 <= found.milliseconds < 1e11
