"""The table of all operations: routes, permissions, and the OpenAPI document come from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import JSON

Handler = Callable[[Call], Awaitable[Response]]

ANY = ""
"""The permission of an operation that every caller may use, or that checks permissions itself."""
PUBLIC = "-"
"""The permission of an operation that needs no credential."""


class Operation(NamedTuple):
    """One method on one path; ``answers`` are its statuses other than those of every operation."""

    method: str
    path: str
    handler: Handler
    summary: str
    permission: str = ANY
    answers: Mapping[int, str] = {200: "The answer."}
    parameters: tuple[str, ...] = ()
    body: type[msgspec.Struct] | None = None
    """The form of the body of a POST, PUT or PATCH; None for a manifest."""
    optional_body: bool = False
    changes: bool = False
    """Whether it changes something or shows a secret, so that the audit log has it; refusals are always in it."""
    form: bool = False
    """Whether the body may also be a form, as clients of OAuth 2.0 send it."""
    media: str = JSON
    """The media type of its answers; errors are JSON."""
    idempotent: bool = False
    """Whether a request that is repeated with its ``Idempotency-Key`` changes nothing again."""


PARAMETERS: Mapping[str, str] = {
    "cursor": "Where the page begins; from the link `next` of the page before.",
    "limit": "The most items of the page.",
    "fields": "Only these fields of each item: names or dotted paths, separated by commas.",
    "after": "The number of an entry; only those after it.",
    "dryRun": "With `true`, nothing is written; the answer shows what would be: files, diff and plan.",
    "force": "With `true`, volume sets of a GVC are deleted with it.",
    "source": "The source for the new manifest, if there are several.",
    "redirect_uri": "Where the command waits, on the machine of the browser: `http://127.0.0.1:PORT/PATH`.",
    "code_challenge": "The SHA-256 of the verifier of the command (RFC 7636).",
    "code_challenge_method": "Always `S256`.",
    "state": "A text that the command gets back with its code.",
    "user_code": "The code that the machine shows.",
    "last": "The number of entries, the newest ones.",
}
"""Query parameter → its description."""
