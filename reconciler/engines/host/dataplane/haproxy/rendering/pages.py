"""The pages of errors that HAProxy itself answers with, as text or as JSON."""

from __future__ import annotations

PAGES = "pages"
"""The directory of the pages below that of HAProxy."""

MESSAGES = {
    400: "the request is not valid",
    403: "the address of the client is not allowed",
    404: "nothing is served at this host name and path",
    502: "no valid response came from a replica",
    503: "no replica was free in time",
    504: "no response came in time",
}
"""Status → the message of its page."""


_UNSERVED = "unserved"
"""The name of the page for a workload that is known and has no backend."""

_BUSY = "busy"
"""The name of the page for a workload with too many connections."""

_SUSPENDED = "suspended"
"""The name of the page for a suspended workload."""


def render_pages() -> dict[str, str]:
    """The pages of errors by name, as text or, for a client that accepts it, as JSON."""
    status_pages = {f"{status}": _render_page(status, message) for status, message in MESSAGES.items()}
    return status_pages | {
        _UNSERVED: _render_page(503, "the workload is not served yet"),
        _SUSPENDED: _render_page(503, "the workload is suspended"),
        _BUSY: _render_page(503, "too many requests to this workload are open"),
    }


def _render_page(status: int, message: str) -> str:
    start = f'{{"status":{status},"message":"{message}","id":"'.replace('"', '\\"')
    plain = f"{status}: {message} (request "
    # A client chooses the id, and must not end the string with it.
    return f'%[var(txn.json),iif("{start}","{plain}")]%[var(txn.id),json(utf8s)]%[var(txn.json),iif("\\"}}",")")]\n'


def error_pages(*, served: bool = True) -> list[str]:
    """The lines that let HAProxy answer with these pages; not ``served``: for workloads without a backend."""
    return [
        _format_error_line(status, _UNSERVED if status == 503 and not served else f"{status}") for status in MESSAGES
    ]


def suspended_answer() -> str:
    """The words that answer a request to a suspended workload. When to try again is not known."""
    return f"deny status 503 {_format_answer(_SUSPENDED)}"


def busy_answer() -> str:
    """The words that answer a request to a workload with too many connections."""
    return f"deny status 503 {_format_answer(_BUSY)} hdr retry-after 1"


def _format_error_line(status: int, name: str) -> str:
    more = " hdr retry-after 1" if status == 503 else ""
    return f"  http-error status {status} {_format_answer(name)}{more}"


def _format_answer(name: str) -> str:
    return f'content-type text/plain lf-file ./{PAGES}/{name} hdr x-reconciler-json "%[var(txn.json)]"'
