"""A client of the YAML language server: as much of an editor as the tests need."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.project.tree import ROOT
from tests.support.programs import tool

PATIENCE = 60.0
HOME = ROOT / "build/editors/node_modules/yaml-language-server"


def program() -> list[str]:
    """The command that starts the server. Without it the test skips, in CI it fails."""
    node = tool("node", "nodejs")
    script = HOME / "bin/yaml-language-server"
    if script.exists():
        return [node, str(script), "--stdio"]
    missing = "yaml-language-server is not installed: run tests/setup-debian.sh tools"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


class LanguageServer:
    """A running server and its messages."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        """Start it on ``folder``; ``settings`` are those that an editor has under ``yaml``."""
        self._settings = {"schemaStore": {"enable": False}, **(settings or {})}
        self._child = subprocess.Popen(program(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder)
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._number = 0
        threading.Thread(target=self._listen, daemon=True).start()
        able = {"textDocument": {"completion": {"completionItem": {"documentationFormat": ["markdown"]}}}}
        self.ask("initialize", {"processId": os.getpid(), "rootUri": folder.as_uri(), "capabilities": able})
        self._send({"method": "initialized", "params": {}})
        self._send({"method": "workspace/didChangeConfiguration", "params": {"settings": {"yaml": self._settings}}})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.wait()

    def open(self, path: Path, text: str | None = None) -> list[dict[str, Any]]:
        """Open a file, or show ``text`` in its place, and return its diagnostics."""
        shown = path.read_text() if text is None else text
        document = {"uri": path.as_uri(), "languageId": "yaml", "version": 1, "text": shown}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        while True:
            message = self._next()
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == path.as_uri():
                found: list[dict[str, Any]] = message["params"]["diagnostics"]
                return found

    def completions(self, path: Path, line: int, column: int) -> dict[str, dict[str, Any]]:
        """What may be written at a place, counted from 0, by its label."""
        where = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": column}}
        answer = self.ask("textDocument/completion", where)
        return {item["label"]: item for item in answer["items"]}

    def ask(self, method: str, params: Any) -> Any:
        """Send a request and wait for its answer."""
        self._number += 1
        mine = self._number
        self._send({"id": mine, "method": method, "params": params})
        while True:
            message = self._next()
            if message.get("id") == mine and "method" not in message:
                assert "error" not in message, message
                return message["result"]

    def _next(self) -> dict[str, Any]:
        message = self._messages.get(timeout=PATIENCE)
        if "method" in message and "id" in message:
            wanted = message["params"].get("items", ()) if message["method"] == "workspace/configuration" else None
            answer = [self._settings if item.get("section") == "yaml" else {} for item in wanted or ()]
            self._send({"id": message["id"], "result": None if wanted is None else answer})
        return message

    def _send(self, message: dict[str, Any]) -> None:
        assert self._child.stdin
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._child.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._child.stdin.flush()

    def _listen(self) -> None:
        stream = self._child.stdout
        assert stream
        while line := stream.readline():
            if line.startswith(b"Content-Length:"):
                size = int(line.split(b":")[1])
                while stream.readline().strip():
                    pass
                self._messages.put(json.loads(stream.read(size)))
