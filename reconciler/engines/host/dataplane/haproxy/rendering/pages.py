"""The pages of errors that HAProxy itself answers with, as text or as JSON."""

from __future__ import annotations

PAGES = "pages"
"""The directory of the pages below that of HAProxy."""

MESSAGES = {
    403: "the address of the client is not allowed",
    404: "nothing is served at this host name and path",
    502: "no valid response came from a replica",
    503: "no replica was free in time",
    504: "no response came in time",
}
"""Status → the message of its page."""


def pages() -> dict[int, str]:
    """Status → the page of an error, as text or, for a client that accepts it, as JSON."""
    return {status: _page(status, message) for status, message in MESSAGES.items()}


def _page(status: int, message: str) -> str:
    start = f'{{"status":{status},"message":"{message}","id":"'.replace('"', '\\"')
    plain = f"{status}: {message} (request "
    return f'%[var(txn.json),iif("{start}","{plain}")]%[var(txn.id),json(utf8s)]%[var(txn.json),iif("\\"}}",")")]\n'


def error_page(status: int) -> str:
    """The line that lets HAProxy answer with the page of ``status``."""
    more = " hdr retry-after 1" if status == 503 else ""
    page = f"lf-file ./{PAGES}/{status}"
    return f'  http-error status {status} content-type text/plain {page} hdr x-reconciler-json "%[var(txn.json)]"{more}'
