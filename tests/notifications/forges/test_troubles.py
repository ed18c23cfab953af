"""What happens when a forge is down, slow, limits requests, redirects, or answers with something else."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from pathlib import Path

import pytest

from reconciler.errors import UsageError
from reconciler.notifications.channels.channel import SendError, SendFailed, SendRefused
from reconciler.notifications.forges.channel import ForgeChannel
from reconciler.notifications.message import EventType, State
from tests.notifications.forges.setup import KINDS, make_message, make_set, make_settings
from tests.notifications.forges.stub_forge import COMMIT, TOKEN, Failure, StubForge, run_stub
from tests.support.certificates import authority, issue


async def _send_failing(stub: StubForge, directory: Path, *failures: Failure, seconds: float = 10.0) -> SendError:
    """The error of a message that meets ``failures``."""
    stub.failures += failures
    channel = ForgeChannel(make_set(make_settings(stub.kind, stub.url, directory), seconds=seconds))
    try:
        with pytest.raises(SendError) as raised:
            await channel.send(make_message(), "")
    finally:
        await channel.close()
    assert TOKEN not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [400, 404, 410, 422])
async def test_a_refusal_is_final_and_in_the_words_of_the_forge(kind: str, status: int, tmp_path: Path) -> None:
    words = f"no way\u202e\n@all, {TOKEN} and more"
    with run_stub(kind) as stub:
        error = await _send_failing(stub, tmp_path, Failure(status, body=json.dumps({"message": words}).encode()))
    assert isinstance(error, SendRefused)
    assert f"{status}" in str(error)
    assert "no way\\u202e @all, *** and more" in str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("status", "advice"), [(401, "write a new one into its file"), (403, "lacks a right")])
async def test_a_commit_waits_for_the_next_token(kind: str, status: int, advice: str, tmp_path: Path) -> None:
    words = json.dumps({"message": f"no way, {TOKEN}"}).encode()
    with run_stub(kind) as stub:
        error = await _send_failing(stub, tmp_path, Failure(status, body=words))
    assert isinstance(error, SendFailed)
    assert "no way, ***" in str(error)
    assert advice in str(error)
    assert not error.reached


async def test_a_wrong_token_is_the_answer_of_a_test(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        stub.failures.append(Failure(401))
        channel = ForgeChannel(make_set(make_settings("gitea", stub.url, tmp_path)))
        with pytest.raises(SendRefused, match="the token is wrong"):
            await channel.send(make_message(event=EventType.TEST), "")
        await channel.close()


@pytest.mark.parametrize(
    ("failure", "wait"),
    [
        (Failure(429, {"Retry-After": "17"}), 17),
        (Failure(503, {"Retry-After": "5"}), 5),
        (Failure(502), None),
        (Failure(403, {"Retry-After": "60"}), 60),
        (Failure(429, {"RateLimit-Remaining": "0", "RateLimit-Reset": "30"}), 30),
        (Failure(429, {"Retry-After": "9999999"}), 86_400),
        (Failure(429, {"Retry-After": "soon"}), None),
    ],
)
async def test_a_forge_that_limits_requests_names_the_wait(
    failure: Failure, wait: float | None, tmp_path: Path
) -> None:
    with run_stub("github") as stub:
        error = await _send_failing(stub, tmp_path, failure)
    assert isinstance(error, SendFailed)
    assert error.retry_after == (None if wait is None else pytest.approx(wait, abs=30))
    assert not error.reached


async def test_the_end_of_a_limit_may_be_a_time(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        end = str(int(time.time()) + 3600)
        error = await _send_failing(
            stub, tmp_path, Failure(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": end})
        )
    assert isinstance(error, SendFailed)
    assert error.retry_after == pytest.approx(3600, abs=300)


async def test_nothing_is_sent_while_a_forge_takes_no_requests(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        stub.failures.append(Failure(429, {"Retry-After": "600"}))
        channel = ForgeChannel(make_set(make_settings("github", stub.url, tmp_path)))
        for _ in range(3):
            with pytest.raises(SendFailed) as raised:
                await channel.send(make_message(), "")
            assert raised.value.retry_after == pytest.approx(600, abs=60)
        await channel.close()
        assert len(stub.requests) == 1


async def test_the_last_request_of_a_limit_stops_the_next(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "600"}
        stub.failures.append(Failure(201, headers, b'{"id": 1}'))
        channel = ForgeChannel(make_set(make_settings("gitea", stub.url, tmp_path)))
        await channel.send(make_message(State.RUNNING), "")
        with pytest.raises(SendFailed):
            await channel.send(make_message(sequence=2), "")
        await channel.close()
        assert len(stub.requests) == 1


async def test_a_forge_that_is_down_fails_for_now(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        channel = ForgeChannel(make_set(make_settings("gitea", url, tmp_path)))
        with pytest.raises(SendFailed, match="cannot be reached") as raised:
            await channel.send(make_message(), "")
        await channel.close()
    assert not raised.value.reached


@pytest.mark.parametrize(
    "failure",
    [Failure(200, wait=3.0), Failure(200, {"Content-Length": "5000"}, b"{}", wait=0.0)],
    ids=["slow", "half-open"],
)
async def test_a_slow_or_half_open_connection_ends_in_time(failure: Failure, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        began = time.monotonic()
        error = await _send_failing(stub, tmp_path, failure, seconds=0.5)
        assert time.monotonic() - began < 30
    assert isinstance(error, SendFailed)
    assert error.reached


async def test_a_connection_that_is_closed_may_have_reached_the_forge(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        error = await _send_failing(stub, tmp_path, Failure(0))
    assert isinstance(error, SendFailed)
    assert error.reached


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"\xff\xff", b"", b"[" * 100_000])
async def test_an_answer_of_another_form_is_a_failure(body: bytes, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        error = await _send_failing(stub, tmp_path, Failure(201, body=body))
    assert isinstance(error, SendFailed)
    assert "not that of its API" in str(error)


async def test_an_endless_answer_is_cut(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        error = await _send_failing(stub, tmp_path, Failure(201, body=b" " * 9_000_000))
    assert "more than" in str(error)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_another_host_gets_no_token(status: int, tmp_path: Path) -> None:
    with run_stub("gitea") as stub, run_stub("gitea") as other:
        location = f"{other.url}/api/v1/repos/acme/shop/statuses/{COMMIT}?token={TOKEN}"
        error = await _send_failing(stub, tmp_path, Failure(status, {"Location": location}))
        assert not other.requests
    assert isinstance(error, SendRefused)
    assert "redirects to 127.0.0.1" in str(error)


async def test_a_redirect_at_the_same_host_is_followed(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        stub.failures.append(Failure(307, {"Location": f"/api/v1/repos/acme/store/statuses/{COMMIT}"}))
        channel = ForgeChannel(make_set(make_settings("gitea", stub.url, tmp_path)))
        await channel.send(make_message(), "")
        await channel.close()
        assert [request.path.split("/")[5] for request in stub.requests] == ["shop", "store"]
        assert len(stub.statuses[COMMIT]) == 1


async def test_redirects_in_a_circle_end(tmp_path: Path) -> None:
    again = Failure(307, {"Location": "/api/v1/repos/acme/shop"})
    with run_stub("gitea") as stub:
        error = await _send_failing(stub, tmp_path, *[again] * 20)
        assert len(stub.requests) == 4
    assert "circle" in str(error)


@pytest.mark.parametrize("trusted", [True, False])
async def test_the_authorities_of_the_settings_count(trusted: bool, tmp_path: Path) -> None:
    server, ca = tmp_path / "server.pem", tmp_path / "ca.pem"
    server.write_bytes(issue("127.0.0.1", by="An authority of forges").pem)
    ca.write_bytes(authority("An authority of forges" if trusted else "Another authority").chain_pem)
    with run_stub("gitea", server) as stub:
        channel = ForgeChannel(make_set(make_settings("gitea", stub.url, tmp_path, ca_file=ca)))
        if trusted:
            await channel.send(make_message(), "")
            assert len(stub.statuses[COMMIT]) == 1
        else:
            with pytest.raises(SendFailed, match="cannot be reached"):
                await channel.send(make_message(), "")
            assert not stub.requests
        await channel.close()


@pytest.mark.parametrize("content", ["", "two words", "a\nb: c", "\x1b[31m", "tökén"])
async def test_a_token_file_with_something_else_is_not_sent(content: str, tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        channel = ForgeChannel(make_set(make_settings("gitea", stub.url, tmp_path)))
        (tmp_path / "token").write_text(content)
        with pytest.raises(SendFailed, match="token file") as raised:
            await channel.send(make_message(), "")
        assert not stub.requests
        assert not content or content not in str(raised.value)
        (tmp_path / "token").write_text(TOKEN)
        await channel.send(make_message(), "")
        await channel.close()


async def test_a_key_that_is_none_shows_nothing_of_itself(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        settings = make_settings("github", stub.url, tmp_path, app=True)
        (tmp_path / "app.pem").write_text("-----BEGIN RSA PRIVATE KEY-----\nplanted\n-----END RSA PRIVATE KEY-----\n")
        channel = ForgeChannel(make_set(settings))
        with pytest.raises(SendRefused, match="is not the private key of an App") as raised:
            await channel.send(make_message(), "")
        await channel.close()
    assert "planted" not in str(raised.value)


async def test_an_app_gets_a_new_token_when_its_own_ends_early(tmp_path: Path) -> None:
    with run_stub("github") as stub:
        channel = ForgeChannel(make_set(make_settings("github", stub.url, tmp_path, app=True)))
        await channel.send(make_message(State.RUNNING), "")
        stub.secrets.clear()
        await channel.send(make_message(sequence=2), "")
        await channel.close()
        assert stub.issued_tokens == 2
        assert not stub.faults


async def test_requests_to_one_forge_are_a_second_apart(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        channel = ForgeChannel(make_set(make_settings("gitea", stub.url, tmp_path), pause=0.2))
        messages = [make_message(commit=f"{number}" * 40) for number in range(5)]
        began = time.monotonic()
        await asyncio.gather(*(channel.send(message, "") for message in messages))
        await channel.close()
        times = [request.at for request in stub.requests]
    assert len(times) == 5
    # The first may take its time to arrive.
    assert times[-1] - began > 0.7


async def test_a_channel_and_a_follower_share_the_pace_of_a_forge(tmp_path: Path) -> None:
    with run_stub("gitea") as stub:
        settings = make_settings("gitea", stub.url, tmp_path)
        sets = [make_set(settings, pause=0.2) for _ in range(2)]
        began = time.monotonic()
        await asyncio.gather(*(one.forges["shop"].check_access() for one in sets * 3))
        for one in sets:
            await one.close()
        times = [request.at for request in stub.requests]
    assert len(times) == 6
    assert times[-1] - began > 0.9


async def test_a_token_needs_tls_but_for_this_host(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="as plain text"):
        make_set(make_settings("gitea", "http://git.example.com", tmp_path))
    make_set(make_settings("gitea", "http://git.example.com", tmp_path, allow_insecure=True))
