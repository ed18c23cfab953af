"""`reconciler logs` shows what workloads wrote, newest last, and follows new lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_readers import STRANGER, becoming_another, member, ready, sandbox
from tests.engines.host.logs.kit import LogHarness, place
from tests.support import processes
from tests.support.command_sandbox import CommandSandbox, golden, here
from tests.support.records import SETTINGS, reconciler
from tests.support.sandbox import DaemonSandbox
from tests.support.terminal import heed_interrupts

__all__ = ["sandbox"]


@pytest.fixture
def location(tmp_path: Path) -> LogHarness:
    """Two workloads in one GVC and one in another, in the minutes after 2026-01-01T00:00:00Z."""
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    location = LogHarness(tmp_path)
    location.taken("listening on 8080\n", place("web"))
    location.wait(1.25)
    location.taken("connected\nerror: no such table\n", place("api", "api-2", "main"))
    location.wait(60)
    location.taken("GET / 200\nGET /x 404\n", place("web"))
    location.taken("hello\n", place("web", gvc="blog"))
    return location


REPLICAS = ("api-2", "web-1")


def test_lines_of_one_gvc(location: LogHarness, tmp_path: Path) -> None:
    result = here("logs", '{gvc="shop"}', cwd=tmp_path)
    assert (result.code, result.err) == (0, "")
    golden("logs.txt", result.out)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["workload/shop/api"], ["connected", "error: no such table"]),
        (["gvc/blog"], ["hello"]),
        (['{gvc="shop", workload=~"web|api"} |= "error"'], ["error: no such table"]),
        (['{gvc="shop"}', "--limit", "1"], ["GET /x 404"]),
        (['{gvc="shop"}', "--limit", "0"], []),
        (['{gvc="shop"}', "--since", "2026-01-01T00:00:30Z"], ["GET / 200", "GET /x 404"]),
        (['{gvc="shop"}', "--until", "2026-01-01T00:00:01"], ["listening on 8080"]),
        (['{gvc="shop"}', "--since", "1h"], []),
        (['{gvc="shop"}', "--since", "3600"], []),
        (["gvc/blog", "--since", "999999999999d"], ["hello"]),
        (["gvc/blog", "--until", "20251231"], []),
        (['{gvc="shop"}', "--until", "1h", "--limit", "2"], ["GET / 200", "GET /x 404"]),
        (["workload/shop/web", "--location", "here", "--limit", "1"], ["GET /x 404"]),
        (["gvc/shop", "--replica", "api-2"], ["connected", "error: no such table"]),
        (['{gvc="shop"} |= "error"', "--replica", "api-2"], ["error: no such table"]),
        (['{container="side"}'], []),
    ],
    ids=" ".join,
)
def test_logs_shows_the_lines_that_a_query_selects(
    location: LogHarness, tmp_path: Path, words: list[str], lines: list[str]
) -> None:
    result = here("logs", *words, cwd=tmp_path)
    assert result.code == 0, result.err
    assert [line.partition(" | ")[2] for line in result.out.splitlines()] == lines


def test_programs_get_objects(location: LogHarness, tmp_path: Path) -> None:
    result = here("logs", "workload/shop/api", "--limit", "1", "-o", "json", cwd=tmp_path)
    assert result.json == {
        "time": "2026-01-01T00:00:01.250Z",
        "gvc": "shop",
        "workload": "api",
        "replica": "api-2",
        "container": "main",
        "location": "here",
        "line": "error: no such table",
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (['{gvc="shop"'], 'column 12: `,` and another label, or `}`, is missing here\n  {gvc="shop"\n             ^\n'),
        (["{gvc=~'x'}"], "column 7: a text in quotes"),
        (["web/x/y"], "'web/x/y' names no streams; write workload/GVC/NAME, gvc/NAME, or streams in braces"),
        (["secret/db"], "'secret/db' names no streams"),
        (["gvc/shop", "--since", "yesterday"], "write a time such as 2026-01-31T12:00:00Z, or 30m, 2h, 3d"),
        (["gvc/shop", "--limit", "-1"], "--limit"),
        (["gvc/shop", "--follow", "--until", "1h"], "use one of them"),
        ([], "missing argument 'QUERY'"),
    ],
)
def test_a_wrong_query_is_refused_with_its_place(tmp_path: Path, words: list[str], why: str) -> None:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    result = here("logs", *words, cwd=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert why in result.err


def test_a_query_without_a_match_names_the_logs_that_exist(location: LogHarness, tmp_path: Path) -> None:
    result = here("logs", "workload/shop/wbe", cwd=tmp_path)
    there = "the query selects no logs; there are logs of blog/web, shop/api, shop/web\n"
    missing = "error: there is no workload/shop/wbe, neither in Git nor in the records"
    assert result == (1, "", f"{missing}; {there}")
    assert here("logs", '{workload="wbe"}', cwd=tmp_path) == (1, "", f"error: there is no workload 'wbe'; {there}")
    assert here("logs", '{workload=~"wbe"}', cwd=tmp_path) == (0, "", there)
    result = here("logs", "gvc/shop", "--replica", "web-9", cwd=tmp_path)
    assert result == (0, "", f"the query selects no logs of web-9; there are logs of {', '.join(REPLICAS)}\n")
    result = here("logs", "gvc/shop", "--location", "hree", cwd=tmp_path)
    assert result == (1, "", "error: there is no location 'hree'; did you mean here?\n")
    result = here("logs", "gvc/shop", "--location", "aws-us-west-2", cwd=tmp_path)
    assert result == (0, "", "there are no logs of aws-us-west-2 on this host; there are logs of here\n")


def test_logs_reports_a_host_without_logs(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    assert here("logs", '{gvc=~"shop"}', cwd=tmp_path) == (0, "", "there are no logs on this host\n")


def test_the_help_shows_the_forms_of_queries(tmp_path: Path) -> None:
    result = here("logs", "--help", cwd=tmp_path, COLUMNS="100")
    assert (result.code, result.err) == (0, "")
    golden("logs-help.txt", result.out)


WRITTEN = b"\x1b[31mred\x1b[0m\ttab \xff \xc3\xbc \xe2\x80\xae \x07\n"


def test_a_pipe_gets_what_was_written_and_json_all_of_it(location: LogHarness, tmp_path: Path) -> None:
    location.taken(WRITTEN, place("odd"))
    result = here("logs", "workload/shop/odd", cwd=tmp_path)
    assert result.out.endswith(" | \x1b[31mred\x1b[0m\ttab \\xff ü \u202e \x07\n")
    assert here("logs", "workload/shop/odd", "-o", "json", cwd=tmp_path).json["line"] == (
        "\x1b[31mred\x1b[0m\ttab \\xff ü \u202e \x07"
    )


@pytest.mark.parametrize("environ", ["-u NO_COLOR", "NO_COLOR=1"])
def test_a_terminal_gets_colours_of_ours_and_obeys_no_line(location: LogHarness, tmp_path: Path, environ: str) -> None:
    location.taken(WRITTEN, place("odd"))
    command = f"env {environ} {sys.executable} -m reconciler.cli logs workload/shop/odd"
    ran = subprocess.run(
        ["script", "--quiet", "--command", command, "/dev/null"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "RECONCILER_SETTINGS": str(tmp_path / "settings.yaml")},
    )
    head, _, line = ran.stdout.decode().partition(" | ")
    assert line == "\\x1b[31mred\\x1b[0m\ttab \\\\xff ü \\u202e \\x07\r\n".replace("\\\\", "\\")
    assert ("\x1b[" in head) is (environ != "NO_COLOR=1")


def test_following_shows_new_lines_and_ends_on_a_signal(location: LogHarness, tmp_path: Path) -> None:
    words = ["-m", "reconciler.cli", "logs", '{gvc="shop"} != "noise"', "--follow", "--limit", "1", "-o", "json"]
    environ = {**os.environ, "RECONCILER_SETTINGS": str(tmp_path / "settings.yaml")}
    following = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        preexec_fn=heed_interrupts,
    )
    assert following.stdout is not None
    try:
        assert json.loads(following.stdout.readline())["line"] == "GET /x 404"
        for number in range(3):
            location.taken(f"noise\nline {number}\n", place("web", f"web-{number}"))
            assert json.loads(following.stdout.readline())["line"] == f"line {number}"
    finally:
        following.send_signal(signal.SIGINT)
        _, complaint = following.communicate(timeout=60)
    assert following.returncode == 130
    assert "Traceback" not in complaint


def test_an_expression_that_takes_for_ever_is_cancelled(location: LogHarness, tmp_path: Path) -> None:
    location.taken("a" * 60 + "!\n", place("web"))
    result = reconciler("logs", '{gvc="shop"} |~ "(a|aa)+$"', cwd=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: the query takes too long")


@becoming_another
def test_a_user_without_permission_gets_an_error(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    tmp_path.chmod(0o755)
    (tmp_path / "state" / "host").mkdir(parents=True)
    (tmp_path / "state").chmod(0o700)
    result = processes.reconciler("logs", "gvc/shop", "--settings", "settings.yaml", cwd=tmp_path, user=STRANGER)
    assert result.returncode == 1, result.stderr
    assert "this user may not read" in result.stderr
    assert "run the command as root" in result.stderr


@becoming_another
def test_members_of_the_readers_see_them_through_the_daemon(sandbox: DaemonSandbox) -> None:
    with sandbox.daemon() as daemon:
        ready(sandbox, daemon)
        location = LogHarness(sandbox.path)
        assert location.state == sandbox.state
        location.taken(WRITTEN + b"fine\n")
        asked = member(sandbox, "logs", '{gvc="shop"} |= "fine"')
        assert (asked.returncode, asked.stderr) == (0, "")
        assert asked.stdout.endswith(" shop/web/web-1/main@here | fine\n")
        root = processes.reconciler("logs", "workload/shop/web", environ=sandbox.environ)
        assert "\x1b" in root.stdout, "a pipe gets the lines as they were written"
        assert member(sandbox, "logs", "workload/shop/web").stdout == root.stdout
        assert "become a member of the group" in member(sandbox, "logs", "gvc/shop", groups=[]).stderr


def test_a_large_store_is_searched_from_its_end(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    location = LogHarness(tmp_path)
    for number in range(40):
        location.taken(os.urandom(500_000).hex() + "\n" + f"{number}\n")
    assert sum(path.stat().st_size for path in location.segments()) > 15_000_000
    result = sandbox.run("logs", '{gvc="shop"} |~ "^[0-9]{1,2}$"', "--limit", "2")
    assert [line[-4:] for line in result.out.splitlines()] == ["| 38", "| 39"]
