"""Each command as its case files show it: words, files and input, then output, exit code and the requests made.

The files, and the cases of each, run in their order against one daemon. ``REWRITE_CASES=1`` writes the present results
into the files; read them before you commit them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reconciler.documents.reader import parse_documents
from reconciler.documents.writer import render_stream
from reconciler.platform_cli.command_line import all_rows
from reconciler.platform_cli.table.kinds import KINDS
from reconciler.platform_cli.table.row import COMMON, Option, Row
from tests.engines.host.logs.kit import LogHarness, place
from tests.platform_cli.kit import PlatformHarness, harness
from tests.support.cases import CASES
from tests.support.dns import name_server

FOLDER = CASES / "platform"
FILES = sorted(FOLDER.glob("*.yaml"))
RESULT = ("exit", "stdout", "stderr", "requests")
VOLATILE = {
    # The daemon may apply a commit before the API has written the event of it.
    r"(?m)^\S+ +Normal +ChangeCommitted .*\n": "",
    # Nor has it always deleted the workload before the GVC's delete is planned.
    r"(?m)^delete workload/demo/web, (?=delete identity/)": "",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ": "TIME",
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d": "TIME",
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b": "ID",
    r"\b[0-9a-f]{40}\b": "COMMIT",
    r"\b[0-9a-f]{32}\b": "DIGEST",
    r"(?<=approve )[0-9a-f]{12}\b|(?<=digest )[0-9a-f]{12}\b|(?<=approved )[0-9a-f]{12}\b": "DIGEST",
    r"\brk_[0-9a-f]{12}\.[-\w]{43}": "KEY",
    r"\bra_[0-9a-f]{16}\.[-\w]{43}": "TOKEN",
    r"/\S+/[a-z]+-[a-z0-9_]{8}\.yaml": "FILE",
    r"platform-cli/\S+": "platform-cli/VERSION",
    r"\b\d+\.\d s\b": "N.N s",
    r"(?m)(?<=\d) +(?:\d+[smhd]){1,2}(?: {2,}|$)": "  AGE  ",
    r"AGE +MESSAGE": "AGE  MESSAGE",
    r"unix://\S+?\.sock": "ENDPOINT",
    r"/\S+/home/": "HOME/",
    # YAML quotes an id that could be a number, such as 12e4567890123456.
    r'(?m)^( *\w+: )"[0-9a-f]{12,16}"$': r"\1ID",
    r"\b[0-9a-f]{12,16}\b": "ID",
    r"\b[a-z0-9]{13}\b(?=\.platform\.local| )": "ALIAS",
}
"""Texts that differ from run to run."""


def cases_of(file: Path) -> list[dict[str, Any]]:
    reading = parse_documents(file.read_bytes(), text_fields=frozenset())
    assert not reading.faults, reading.faults
    return [each.value for each in reading.documents]


def fixed(text: str) -> str:
    for pattern, word in VOLATILE.items():
        text = re.sub(pattern, word, text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


def played(shop: PlatformHarness, case: dict[str, Any]) -> dict[str, Any]:
    """The case with what comes of it now."""
    for name, text in case.get("files", {}).items():
        (shop.home / name).parent.mkdir(exist_ok=True)
        (shop.home / name).write_text(text)
    shop.relay.requests.clear()
    done = shop.run(*shlex.split(case["run"]), text=case.get("input", ""), environ=case.get("environ"))
    if any(not request.startswith("GET ") for request in shop.relay.requests):
        shop.wait_until_applied()
    found = {"exit": done.returncode, "stdout": fixed(done.stdout), "stderr": fixed(done.stderr)}
    requests = [fixed(request) for request in shop.relay.requests]
    return {**{name: value for name, value in case.items() if name not in RESULT}, **found, "requests": requests}


def test_commands_do_as_their_cases_show(tmp_path: Path) -> None:
    """All files in one test, and in one worker: each begins with what those before it left."""
    with name_server() as server, harness(tmp_path, domains={"resolver": server.address}) as shop:
        server.texts = {f"_reconciler-challenge.example.{end}": ["org=acme"] for end in ("com", "org")}
        LogHarness(shop.sandbox.path).taken("listening\nGET /x 404\n", place("web"))
        for file in FILES:
            cases = cases_of(file)
            now = [played(shop, case) for case in cases]
            if os.environ.get("REWRITE_CASES"):
                file.write_text(render_stream(now))
                continue
            for found, case in zip(now, cases, strict=True):
                assert found == case, file.stem


def test_every_command_has_a_case() -> None:
    run = [words for words, _ in all_cases()]
    rows = {row: [each for each in run if any(begins(each, words) for words in spellings(row))] for row in all_rows()}
    assert [" ".join(row.words) for row, found in rows.items() if not found] == []
    assert len(run) >= len(rows)
    used = {(row.run, words[len(row.words) - 1]) for row, found in rows.items() for words in found}
    assert {(row.run, text) for row in rows for text in (row.words[-1], *row.aliases)} - used == set()


def test_every_option_has_a_case() -> None:
    """One for each function: kinds share their common subcommands. Those that all commands have need one case each."""
    used: dict[str, set[str]] = {}
    for words, _ in all_cases():
        for row in all_rows():
            if any(begins(words, each) for each in spellings(row)):
                used.setdefault(row.run, set()).update(words)
    without = {
        f"{row.run} {option.names}"
        for row in all_rows()
        for option in row.options
        if not is_used(option, used[row.run])
    }
    everywhere = {word for words, _ in all_cases() for word in words}
    without |= {option.names for option in COMMON if not is_used(option, everywhere)}
    without |= {choice for option in COMMON for choice in option.choices if choice not in everywhere}
    assert without == set()


def test_every_function_has_a_case_that_succeeds() -> None:
    found = {row.run for words, code in all_cases() if code == 0 for row in all_rows() if begins(words, row.words)}
    assert {row.run for row in all_rows() if row.run} - found == SHOWN_BY_TESTS.keys()


SHOWN_BY_TESTS = {
    "accounts:remove_key": "test_secrets.py: the id of a key is never the same",
    "executing:open_shell": "test_exec.py: a container has to run",
    "executing:run_command": "test_exec.py: a container has to run",
    "agents:run_agent": "test_operating.py: Docker or Podman has to be there",
    "login:log_in": "test_login.py: the server checks the token, which is never the same",
    "login:log_out": "test_secrets.py: a session is needed",
    "operating:approve": "test_operating.py: the digest is in a note of another command",
    "operating:refuse": "test_operating.py: the digest is in a note of another command",
    "operating:describe": "test_operating.py: its text has spans of time",
    "operating:hold": "test_operating.py: a container has to run",
    "operating:retry": "test_operating.py: a step has to fail",
    "resources:show_report": "tests/api/test_agents.py: an agent has to report",
}
"""Functions without a case that succeeds, and what shows their success."""


def all_cases() -> list[tuple[list[str], int]]:
    """The words and the exit code of each case; an alias of a kind is replaced."""
    aliases = {alias: kind for kind, view in KINDS.items() for alias in view.aliases}
    cases = []
    for file in FILES:
        for case in cases_of(file):
            first, *rest = shlex.split(case["run"])
            cases.append(([aliases.get(first, first), *rest], case.get("exit", 0)))
    return cases


def spellings(row: Row) -> list[tuple[str, ...]]:
    """The words of a command, with each alias of the last one."""
    return [(*row.words[:-1], each) for each in (row.words[-1], *row.aliases)]


def begins(words: Sequence[str], others: Sequence[str]) -> bool:
    return [*words[: len(others)]] == [*others]


def is_used(option: Option, words: set[str]) -> bool:
    return not {name for word in words for name in (word, word.partition("=")[0])}.isdisjoint(option.names.split("/"))
