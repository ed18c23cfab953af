"""What Podman and the OCI runtime say, in words for people who wrote a manifest or typed a command."""

from __future__ import annotations

import json
import re

_LOG_LINE = re.compile(r'(?:time="[^"]*" )?level=(?:error|fatal|warning) msg=("(?:[^"\\]|\\.)*"|\S+)')
_PROGRAM = r'(?:exec|container_linux\.go:\d+): "(?P<name>(?:[^"\\]|\\.)+)": '
_SENTENCES = (
    (re.compile(rf"{_PROGRAM}executable file not found in \$PATH"), "the container has no program {name} in its PATH"),
    (re.compile(rf"{_PROGRAM}(?:stat [^:]+: )?no such file or directory"), "the container has no program {name}"),
    (re.compile(rf"{_PROGRAM}permission denied"), "{name} may not be executed: its mode or user forbids it"),
    (re.compile(rf"{_PROGRAM}is a directory"), "{name} may not be executed: it is a directory"),
    (re.compile(rf"{_PROGRAM}exec format error"), "{name} is for another kind of processor, or a script without #!"),
    (
        re.compile(r"unable to find user (?P<name>\S+): no matching entries"),
        "the container has no user {name} in its /etc/passwd",
    ),
    (
        re.compile(r"unable to find group (?P<name>\S+): no matching entries"),
        "the container has no group {name} in its /etc/group",
    ),
    (re.compile(r'workdir "(?P<name>[^"]+)" does not exist'), "the container has no directory {name}, its workingDir"),
)
"""What is recognised → what a person reads. The words before and after it are the way that it took inside Podman."""


def find_sentence(text: str) -> str:
    """A sentence for what ``text`` is about, "" if that is not known."""
    plain = " ".join(read_log_message(text).split())
    for pattern, sentence in _SENTENCES:
        match = pattern.search(plain)
        if match is not None:
            return sentence.format(name=match["name"])
    return ""


def read_log_message(line: str) -> str:
    """The message of a line that Podman or the OCI runtime logs (``time="…" level=error msg="…"``); else ``line``."""
    match = _LOG_LINE.search(line)
    if match is None:
        return line
    quoted = match[1]
    try:
        return str(json.loads(quoted)) if quoted.startswith('"') else quoted
    except ValueError:
        # Go escapes more than JSON does.
        return quoted[1:-1].replace('\\"', '"')
