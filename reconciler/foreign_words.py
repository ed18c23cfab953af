"""Words of other programs, without what differs from try to try: one trouble that lasts has one message."""

from __future__ import annotations

import re
from functools import cache, lru_cache

_LONGEST = 4_000
"""The most characters that are looked at: messages are cut to fewer."""

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CHANGES = (
    # curl and Go measure how long they waited, and count what came meanwhile.
    (r" after (?:\d+(?:\.\d+)? ?(?:ms|milliseconds)|(?:\d+m)?\d+\.\d+s)\b", ""),
    (r" with (?:outstanding read data remaining|\d+ (?:out of \d+ )?bytes (?:received|remaining to read))", ""),
    (r"\b\d+ (?=bytes of body are still expected)", ""),
    (r" \(\d+[hms][\dhms.]* ago\)", ""),
    # The kubelet waits longer after each try.
    (r"\bback-off \d[\w.]* (?=restarting)", "back-off "),
    # Go shows the port that its side of a connection happens to have, and where in a request its time was over.
    (r"(?<![\w.-])(?:\[[\w:.%]+\]|[\w.-]+):\d+->(?=[\[\w])", ""),
    (
        r"(?:net/http: request canceled(?: while waiting for connection)?|context deadline exceeded)"
        r" \(Client\.Timeout[^)]*\)",
        "context deadline exceeded",
    ),
    (r"\bcurrent time \S+ (?=is (?:after|before) )", "now "),
    # A name may have several addresses, which take turns.
    (r"\bby (?:[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]+|UNKNOWN) port \d+", "by the other side"),
    # Ids of a request, a process, a container, a pod and a device are new for each try; a digest is not.
    (
        r"(?i),? ?\(?\b(?:x-amz-|x-ms-)?(?:request|correlation|trace|host)[ _-]?id\b[\"']?\s*[:=]\s*"
        r"[\"']?[\w+/=-]{6,}[\"']?(?:\s+timestamp: [\d-]+[ T][\d:.]+Z?)?\)?",
        "",
    ),
    (r"(?i)(\bpid[ =:]+|/proc/)\d+", r"\1…"),
    (r"(?<!sha256[:-])(?<![0-9A-Za-z])[0-9a-f]{64}(?![0-9A-Za-z])", "…"),
    (rf"(?<=/pods/){_UUID}", "…"),
    (rf"_{_UUID}_\d+", "_…"),
    (rf"\({_UUID}\)", ""),
    (r'\b(pods "[a-z0-9.-]+)-[b-df-hj-np-tv-xz2-9]{5}"', r'\1-…"'),
    (r"/dev/loop\d+", "/dev/loop…"),
    (r"(/tmp/[\w./-]*?)\d{6,}", r"\1…"),
    (r"(/\.well-known/acme-challenge/)[\w-]+", r"\1…"),
)
"""What differs from try to try → what stays of it."""


@cache
def _compile_changes() -> list[tuple[re.Pattern[str], str]]:
    """Compiled where they are first used: most commands need none."""
    return [(re.compile(pattern), rest) for pattern, rest in _CHANGES]


def strip_variation(text: str) -> str:
    """``text`` of another program without times, ports, ids and counts that are new at each try.

    A message that changes at each look is a new event, status file and notification each time, although the trouble is
    the same.
    """
    return _strip_start(text[:_LONGEST]) + text[_LONGEST:]


@lru_cache(1024)
def _strip_start(text: str) -> str:
    """Each observation reads the same words again."""
    for pattern, rest in _compile_changes():
        text = pattern.sub(rest, text)
    return text
