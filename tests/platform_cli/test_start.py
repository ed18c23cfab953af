"""What the platform command imports: most of the time of a short command goes into that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.platform_cli.command_line import COMPLETE_VARIABLE
from tests.platform_cli.test_client import ScriptedServer, answer

COMPLETION = {COMPLETE_VARIABLE: "bash_complete", "COMP_WORDS": "platform workload get a", "COMP_CWORD": "3"}
HEAVY = {
    "asyncio",
    "httpx2",
    "pygit2",
    "reconciler.daemon",
    "rich",
    "sqlite3",
    "structlog",
    "tempfile",
    "urllib.request",
    "websockets",
    "yaml",
}
"""No short command needs these; together they take longer than all that it needs."""
SHOWN = {"reconciler.documents", "reconciler.platform_cli.commands", "reconciler.platform_cli.output"}
NETWORK = {"http.client", "ssl", "json", "msgspec"}


@pytest.mark.parametrize(
    ("words", "environ", "unwanted", "shows"),
    [
        ("--version", {}, NETWORK | {"reconciler.platform_cli.session"}, "0."),
        ("--help", {}, NETWORK, "workload"),
        ("workload get --help", {}, NETWORK, "--max"),
        ("workload get api", {}, {"webbrowser", "http.server"}, "api"),
        ("workload get --output json", {}, {"webbrowser", "http.server"}, '"api"'),
        ("", COMPLETION, SHOWN, "plain,api"),
    ],
)
def test_a_command_imports_only_what_it_needs(
    tmp_path: Path, words: str, environ: dict[str, str], unwanted: set[str], shows: str
) -> None:
    item = {"kind": "workload", "name": "api"}
    server = ScriptedServer(answer(body={"kind": "list", "items": [item], "links": [], "name": "api"}))
    settings = {
        "XDG_CONFIG_HOME": str(tmp_path),
        "PLATFORM_ORG": "acme",
        "PLATFORM_GVC": "shop",
        "PLATFORM_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
    }
    command = [sys.executable, "-X", "importtime", "-m", "reconciler.platform_cli", *words.split()]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **settings, **environ}
    )
    assert shows in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    assert imported & (HEAVY | unwanted) == set()
