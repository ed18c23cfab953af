"""Standard streams that are closed, and words that are no text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.platform_cli.test_client import ScriptedServer, answer

BIN = Path(sys.executable).parent


def run(tmp_path: Path, script: str, *words: str | bytes) -> subprocess.CompletedProcess[str]:
    """``words`` behind the ``script`` of a shell that has a server, and changes the streams of the command."""
    server = ScriptedServer(answer(body={"kind": "list", "items": [{"kind": "gvc", "name": "shop"}], "links": []}))
    environ = {
        **os.environ,
        "XDG_CONFIG_HOME": str(tmp_path),
        "PLATFORM_ORG": "acme",
        "PLATFORM_GVC": "shop",
        "PLATFORM_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    command = ["sh", "-c", script, "sh", *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("script", "code", "out", "err"),
    [
        ("platform gvc get -o json-slim >&-", 0, "", ""),
        ("platform gvc get 2>&- | grep -o shop", 0, "shop\n", ""),
        ("platform apply --file - <&-", 2, "", "error: standard input: there is no manifest\n"),
        ("platform login work --token-stdin <&-", 2, "", "error: standard input has no token\n"),
        ("docker-credential-platform get <&-", 1, "no credentials server URL\n", ""),
        ("reconciler --version <&- >&- 2>&-", 0, "", ""),
    ],
)
def test_a_closed_stream_is_empty(tmp_path: Path, script: str, code: int, out: str, err: str) -> None:
    done = run(tmp_path, script)
    assert (done.returncode, done.stdout, done.stderr) == (code, out, err)


def test_a_word_that_is_no_text_is_a_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, 'platform workload get "$1"', b"n\xf6")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: an argument, or an environment variable, is not text in UTF-8\n"
