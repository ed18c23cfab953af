"""Log lines as they leave the program."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys

import pytest

from reconciler.logs import configure_logging, log
from tests.project.tree import ROOT, modules


def test_every_line_goes_through_the_configured_log() -> None:
    texts = {path: (ROOT / path).read_text() for path in modules()}
    assert [path for path, text in texts.items() if "get_logger" in text] == ["reconciler/logs.py"]


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def line(**facts: object) -> dict[str, object]:
    stream = io.StringIO()
    configure_logging("auto", "info", stream)
    log().info("run", **facts)
    found: dict[str, object] = json.loads(stream.getvalue())
    return found


def test_it_is_one_line_of_json_without_a_terminal() -> None:
    found = line(source="main", applied=3, took=0.25)
    assert found.pop("timestamp")
    assert found == {"event": "run", "level": "info", "source": "main", "applied": 3, "took": 0.25}


def test_it_is_for_people_on_a_terminal() -> None:
    stream = Terminal()
    configure_logging("auto", "info", stream)
    log().info("run", source="main")
    assert "main" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_terminal_gets_json_where_the_settings_ask_for_it() -> None:
    stream = Terminal()
    configure_logging("json", "info", stream)
    log().warning("run")
    assert json.loads(stream.getvalue())["level"] == "warning"


def test_a_log_without_a_reader_stops_nothing() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w", buffering=1)
    configure_logging("json", "info", stream)
    log().info("heard")
    assert b"heard" in os.read(reading, 1000)
    os.close(reading)
    log().info("unheard")
    log().error("unheard too")
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_lines_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    configure_logging("json", "warning", stream)
    log().info("quiet")
    log().error("loud")
    assert [json.loads(text)["event"] for text in stream.getvalue().splitlines()] == ["loud"]


@pytest.mark.parametrize(
    "name",
    ["token", "webhook_token", "secret", "password", "db-password", "data", "secret_data", "Authorization", "api_key"],
)
def test_a_value_under_a_telling_name_is_masked(name: str) -> None:
    assert line(**{name: "hunter2"})[name] == "***"
    assert "hunter2" not in json.dumps(line(settings=[{name: {"deep": "hunter2"}}]))


@pytest.mark.parametrize("name", ["path", "metadata", "tokens_seen", "secrets_file", "key"])
def test_other_names_are_shown(name: str) -> None:
    assert line(**{name: "shown"})[name] == "shown"


def test_credentials_in_a_url_are_masked_wherever_it_stands() -> None:
    found = line(url="https://ada:hunter2@git.example/m.git", errors=["cannot read ssh://hunter2@git.example/m"])
    assert found["url"] == "https://***@git.example/m.git"
    assert found["errors"] == ["cannot read ssh://***@git.example/m"]


def test_an_exception_is_logged_with_its_traceback() -> None:
    stream = io.StringIO()
    configure_logging("json", "info", stream)
    try:
        raise KeyError("absent")
    except KeyError:
        log().exception("bug")
    assert "Traceback" in json.loads(stream.getvalue())["exception"]


def test_structlog_is_loaded_only_where_something_is_logged() -> None:
    code = "import sys, reconciler.logs; sys.exit('structlog' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
