"""Programs over the API: their time begins when they do, however long Podman takes to start them."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.engines.host.runtimes.podman.kit import launch, opened, place
from tests.engines.host.runtimes.podman.libpod import Libpod


class SlowLibpod(Libpod):
    """A service that takes ``start`` seconds to start a program, which runs for ``run`` seconds."""

    def __init__(self, start: float, run: float) -> None:
        super().__init__()
        self._start_seconds = start
        self._run_seconds = run

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        """The answer to a request."""
        if re.search("/exec/e/start$", request.url.path):
            await asyncio.sleep(self._start_seconds)
            return httpx2.Response(200, content=self._output())
        return await super().handle(request)

    def _answer(self, name: str, query: dict[str, str], body: dict[str, Any]) -> httpx2.Response:
        if re.fullmatch("POST containers/[^/]+/exec", name):
            return httpx2.Response(201, json={"Id": "e"})
        if name == "GET exec/e/json":
            return httpx2.Response(200, json={"Running": False, "ExitCode": 0, "Pid": 0})
        return super()._answer(name, query, body)

    async def _output(self) -> AsyncIterator[bytes]:
        await asyncio.sleep(self._run_seconds)
        yield struct.pack(">BxxxL", 1, 3) + b"ok\n"


@pytest.mark.parametrize(("start", "run", "output"), [(1.2, 0.0, "ok\n"), (0.0, 30.0, "")])
async def test_the_time_of_a_program_begins_when_it_does(tmp_path: Path, start: float, run: float, output: str) -> None:
    async with opened(tmp_path, tmp_path / "socket", SlowLibpod(start, run).transport()) as host:
        await host.runtime.start(launch())
        assert (await host.runtime.exec(place(), ["true"], 1.0)).output == output
