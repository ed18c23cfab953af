"""Readers share the daemon fairly, and their commands import nothing from where it was started."""

from __future__ import annotations

import asyncio
import grp
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from reconciler.daemon import read_server
from reconciler.daemon.read_server import MAX_COMMANDS, MAX_COMMANDS_PER_USER, NAME, Frame, ReaderSlots, ReadOnlyServer
from tests.support.desk import Desk

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def ask(state: Path, *words: str) -> Link:
    """A connection, with a question where there are ``words``."""
    reader, writer = await asyncio.open_unix_connection(str(state / NAME))
    if words:
        writer.write(msgspec.json.encode(words) + b"\n")
    return reader, writer


async def answer(link: Link) -> tuple[int, str]:
    """Exit code and all that is written."""
    text = b""
    while head := await link[0].readexactly(5):
        content = await link[0].readexactly(Frame.length(head))
        if head[0] == Frame.EXIT:
            return int(content), text.decode()
        text += content
    raise AssertionError


def serve(desk: Desk, story: Callable[[Path], Awaitable[None]]) -> None:
    """The story, with a server for this user's own group."""

    async def play() -> None:
        server = ReadOnlyServer(desk.state, desk.settings)
        await server.open(grp.getgrgid(os.getgid()).gr_name)
        try:
            async with asyncio.timeout(30):
                await story(desk.state)
        finally:
            await server.close()

    asyncio.run(play())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.applied()
    return desk


def test_a_command_imports_nothing_from_the_working_directory(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in ("click.py", "reconciler.py", "sitecustomize.py", "json.py"):
        (hostile / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write({name!r})\n")
    monkeypatch.chdir(hostile)
    monkeypatch.setenv("PYTHONPATH", str(hostile))

    async def story(state: Path) -> None:
        code, text = await answer(await ask(state, "get", "gvc"))
        assert (code, "shop" in text) == (0, True), text

    serve(desk, story)
    assert not (tmp_path / "ran").exists()


def test_a_user_with_many_commands_gets_no_more(desk: Desk) -> None:
    async def story(state: Path) -> None:
        links = [await ask(state) for _ in range(MAX_COMMANDS_PER_USER)]
        assert await answer(await ask(state, "get")) == (1, "error: you have 4 commands running already; end one\n")
        links[0][1].close()
        await links[0][1].wait_closed()
        while (found := await answer(await ask(state, "get", "gvc")))[0]:
            assert "running already" in found[1]

    serve(desk, story)


def test_the_user_with_most_commands_makes_room_for_one_with_none(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    users = iter([number // MAX_COMMANDS_PER_USER for number in range(MAX_COMMANDS)] + [99])
    monkeypatch.setattr(read_server, "_user", lambda _: next(users))

    async def story(state: Path) -> None:
        links = [await ask(state) for _ in range(MAX_COMMANDS)]
        code, text = await answer(await ask(state, "get", "gvc"))
        assert (code, "shop" in text) == (0, True), text
        assert await answer(links[0]) == (1, "error: ended to make room for other readers; try again later\n")

    serve(desk, story)


def test_a_command_that_takes_too_long_is_ended(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_server, "COMMAND_SECONDS", 0.0)

    async def story(state: Path) -> None:
        code, text = await answer(await ask(state, "plan"))
        assert (code, text) == (1, "error: ended after 0 s, the limit for commands of readers\n")
        following = await ask(state, "events", "--last", "1", "-fojson")
        assert (await following[0].readexactly(5))[0] == Frame.OUT, "one that follows goes on"

    serve(desk, story)


def test_slots_are_shared_evenly() -> None:
    async def story() -> None:
        slots, mine = ReaderSlots(), asyncio.current_task()
        assert mine is not None
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(MAX_COMMANDS)]
        for number, task in enumerate(tasks):
            assert slots.admit(number % 8) == ("", None)
            slots.take(task, number % 8)
        assert slots.admit(100) == ("", tasks[0]), "16 of 8 users: two each, and none of the newcomer"
        slots.free(tasks[0])
        slots.take(mine, 100)
        assert slots.admit(100)[0] == "too many commands at once; try again", "one more would be as many as others have"
        await asyncio.gather(*tasks)

    asyncio.run(story())
