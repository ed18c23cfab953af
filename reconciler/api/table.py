"""The table of all operations: routes, permissions, and the OpenAPI document come from it.

A linear search through regular expressions, as frameworks do it, would cost more than most answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import HTML, JSON, MOST_BODY, Problem
from reconciler.model.key import GVC_SCOPED, KINDS
from reconciler.printable import truncate_text

_IN_GVC = frozenset(map(str, GVC_SCOPED))
Handler = Callable[[Call], Awaitable[Response]]

EVENTS = "text/event-stream"
WEBSOCKET = "websocket"
"""In place of a media type: the operation opens a WebSocket."""
LINES = "application/x-ndjson"
"""Objects in JSON, one a line."""
TEXT, MARKDOWN, YAML = "text/plain", "text/markdown", "application/yaml"
ANY = ""
"""The permission of an operation that every caller may use, or that checks permissions itself."""
OVERVIEW = "*"
"""The permission of an operation that shows all resources: `view` on everything of every kind."""
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
    bounds: Mapping[str, tuple[int, int]] = {}
    """The least and the most of those parameters that are numbers, where they differ from others of the name."""
    body: type[msgspec.Struct] | None = None
    """The form of the body of a POST, PUT or PATCH; None for a manifest."""
    optional_body: bool = False
    changes: bool = False
    """Whether it changes something or shows a secret, so that the audit log has it; refusals are always in it."""
    form: bool = False
    """Whether the body may also be a form, as clients of OAuth 2.0 send it."""
    media: str = JSON
    """The media type of its answers; errors are JSON."""
    forms: tuple[str, ...] = ()
    """Other media types of its answers, for requests whose header `Accept` has them."""
    credential: bool = False
    """Whether a request without a caller has a credential in its body, or a signature: as elsewhere, only refused ones
    count for the limit of their address."""
    idempotent: bool = False
    """Whether a request that is repeated with its ``Idempotency-Key`` changes nothing again."""
    most_body: int = MOST_BODY
    """Bytes of the longest body."""
    page: bool = False
    """Whether a browser asks for it: the cookie of a login can name the caller, and errors are pages."""


def make_page_operation(
    path: str, answer: Handler, summary: str, permission: str = ANY, parameters: tuple[str, ...] = ()
) -> Operation:
    """The operation that shows a page."""
    return Operation("GET", path, answer, summary, permission, parameters=parameters, media=HTML, page=True)


PARAMETERS: Mapping[str, str] = {
    "selector": "Only what has these tags: `k=v`, `k!=v`, `k`, `!k`, `k in (a,b)`, separated by commas.",
    "sort": "The field of the items by which they are sorted, such as `.name`; with `-` before it, backwards.",
    "wide": "With `true`, the text has all columns.",
    "cursor": "Where the page begins; from the link `next` of the page before.",
    "limit": "The most items, of the page or of all.",
    "fields": "Only these fields of each item: names or dotted paths, separated by commas.",
    "namePrefix": "Only items whose name begins so; in a list across GVCs, `GVC/` stands before the names.",
    "after": "The number of an entry, or the id of an event; only those after it.",
    "digest": "The digest of the plan that is expected; with another plan, nothing is changed.",
    "dryRun": "With `true`, nothing is written; the answer shows what would be: files, diff and plan.",
    "force": "With `true`, volume sets of a GVC are deleted with it.",
    "id": "The number of a message: only this one, with its text.",
    "run": "The number of a run: only this one, with its phases and steps.",
    "source": "The source: of a new manifest, if there are several; of the runs that are listed.",
    "redirect_uri": "Where the command waits, on the machine of the browser: `http://127.0.0.1:PORT/PATH`.",
    "code_challenge": "The SHA-256 of the verifier of the command (RFC 7636).",
    "code_challenge_method": "Always `S256`.",
    "state": "Of a login: a text that the command gets back with its code. Of a list: only resources in this state.",
    "text": "Only resources whose key has this text.",
    "user_code": "The code that the machine shows.",
    "timeoutSeconds": "Seconds after which a watch ends; without it, it lasts as long as the connection.",
    "last": "The number of entries, the newest ones.",
    "query": "Which logs: `workload/GVC/NAME`, `gvc/NAME`, or a query in LogQL.",
    "lines": "The most lines, the newest ones.",
    "since": "Only what is since then: a time, or an age such as `30m`.",
    "until": "Only lines until then: a time, or an age.",
    "location": "Only what is at this location.",
    "replica": "Only what is of this replica or execution.",
    "command": "A word of the command; repeated for each. Without it, a shell.",
    "container": "The container; else the first one.",
    "tty": "With `true`, the program gets a terminal.",
    "rows": "The lines of the terminal.",
    "columns": "The characters of a line of the terminal.",
    "kind": "Only resources of this kind.",
    "gvc": "Only resources of this GVC.",
    "name": "Only the resource with this name.",
    "key": "Which resource or source: a key, such as `workload/GVC/NAME` or `source/NAME`, `KIND/NAME`, or a link.",
    "target": "Only this source, resource or commit; a commit by the first characters of its id.",
    "deleted": "With `true`, the final snapshots of deleted volumes on this host.",
    "revision": "A revision of the source: a commit, branch or tag; without it, the newest one.",
    "from": "The revision to compare from: a commit, branch or tag.",
    "to": "The revision to compare with.",
    "commits": "How many commits of the source are searched.",
    "blame": "With `true`, the commits behind the changes are searched for; with `false`, they are not.",
    "follow": "With `true`, new lines or events follow until the client goes.",
}
"""Query parameter → its description."""


class OperationMatch(NamedTuple):
    """An operation, and the names in the path by its parameters."""

    operation: Operation
    parameters: dict[str, str]


class _Node:
    """The operations on a path by method, and the paths below it: after a word, and after a name."""

    def __init__(self) -> None:
        self.methods: dict[str, Operation] = {}
        self._parameters: tuple[str, ...] = ()
        self._words: dict[str, _Node] = {}
        self._below_name: _Node | None = None

    def add(self, operation: Operation, segments: Sequence[str], parameters: tuple[str, ...] = ()) -> None:
        """Add ``operation`` at ``segments`` below this node, which ``parameters`` lead to."""
        if not segments:
            self.methods[operation.method] = operation
            self._parameters = parameters
        elif segments[0].startswith("{"):
            self._below_name = self._below_name or _Node()
            self._below_name.add(operation, segments[1:], (*parameters, segments[0][1:-1]))
        else:
            self._words.setdefault(segments[0], _Node()).add(operation, segments[1:], parameters)

    def match(self, method: str, names: Sequence[str]) -> OperationMatch | None:
        """The operation of ``method`` here; None if there is none."""
        operation = self.methods.get(method)
        return None if operation is None else OperationMatch(operation, dict(zip(self._parameters, names, strict=True)))

    def has_kind(self, names: Sequence[str]) -> bool:
        """Whether the name of a kind among ``names`` is that of one; True without."""
        named = dict(zip(self._parameters, names, strict=True))
        return "kind" not in named or named["kind"] in (_IN_GVC if "gvc" in named else KINDS)

    def below(self, segments: Sequence[str], names: tuple[str, ...] = ()) -> Iterator[tuple[_Node, tuple[str, ...]]]:
        """The nodes with operations that ``segments`` lead to, and the names on the way, a word before a name."""
        if not segments:
            if self.methods:
                yield self, names
            return
        segment, rest = segments[0], segments[1:]
        if segment in self._words:
            yield from self._words[segment].below(rest, names)
        if self._below_name is not None and segment and segment[0] != "-":
            yield from self._below_name.below(rest, (*names, segment))


class Routes:
    """All operations by path. A name does not begin with a hyphen; where a word and a name match, the word counts."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            self._root.add(operation, _split_path(operation.path))

    def find(self, method: str, path: str) -> OperationMatch:
        """The operation of ``method`` on ``path``. Raises Problem 404 or 405."""
        verb = "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        nodes = list(self._root.below(_split_path(path)))
        # Where a word takes the place of a kind, such as in `source`, there are no operations on kinds. A word that is
        # neither has them, so that their answer names the kinds.
        present = [(node, names) for node, names in nodes if node.has_kind(names)]
        for node, names in present or nodes:
            if (match := node.match(verb, names)) is not None:
                return match
            allowed |= node.methods.keys() if present else set()
        if "GET" in allowed:
            allowed.add("HEAD")
        if allowed:
            ways = ", ".join(sorted(allowed))
            raise Problem(405, f"{truncate_text(path)} takes only {ways}", headers={"Allow": ways})
        raise Problem(404, f"the API has no path {truncate_text(path)}; /openapi.json lists all")


def _split_path(path: str) -> list[str]:
    return path.split("/")[1:]
