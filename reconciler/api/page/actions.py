"""Forms of the page: each is the request of the API below ``/ui/do``, with fields in place of JSON.

So a form has the permissions, the words and the audit entry of the API, and no action is written twice.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

from reconciler.api.call import MOST_FIELDS, Call
from reconciler.api.page.forms import check_form, choose_target
from reconciler.api.page.notices import leave_notice
from reconciler.api.problems import FORM, Problem
from reconciler.api.table import PUBLIC, Operation

ACTIONS = "/ui/do/"
"""The beginning of the path of a form: the method and the path of the operation follow."""
FORM_TOKEN, NEXT = "form_token", "next"
"""Fields of every form: the token of the session, and the page that follows."""
_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_PATH = re.compile(r"/ui/do/([A-Z]+)(/.+)")
_LONGEST_SENTENCE = 500
_MOST_DIGITS = 16


def redirect_action(scope: Scope) -> Scope:
    """The scope of the operation that a form asks for; any other ``scope`` as it is. Raises Problem 404."""
    path: str = scope["path"]
    if not path.startswith(ACTIONS) or scope["type"] != "http" or scope["method"] != "POST":
        return scope
    match = _PATH.fullmatch(path)
    if match is None or match[1] not in _METHODS:
        raise Problem(404, "there is no such form")
    return {**scope, "method": match[1], "path": match[2], "raw_path": match[2].encode(), "page_action": True}


def is_action(request: Request) -> bool:
    """Whether a form of the page sent the request."""
    return bool(request.scope.get("page_action"))


def make_action(operation: Operation) -> Operation:
    """``operation`` for a form of the page. Raises Problem 404 where a form has nothing to send."""
    if not operation.changes or operation.permission == PUBLIC:
        raise Problem(404, "there is no such form")
    return operation._replace(handler=partial(_perform_operation, operation), page=True, idempotent=False)


async def read_form(call: Call) -> dict[str, str]:
    """The fields of the form that was sent, without empty ones. Raises Problem 400, 403 and 415."""
    if call.request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise Problem(415, f"a form is sent as {FORM}")
    try:
        text = (await call.raw_body()).decode()
        fields = dict(parse_qsl(text, keep_blank_values=False, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise Problem(400, f"the body is no form of at most {MOST_FIELDS} fields in UTF-8") from None
    check_form(call, fields.pop(FORM_TOKEN, ""))
    return fields


async def _perform_operation(operation: Operation, call: Call) -> Response:
    """Carry out ``operation`` with the fields of the form, and go on to a page that says what it did."""
    fields = await read_form(call)
    following = choose_target(fields.pop(NEXT, "/"))
    call.replace_body(_make_body(operation, fields))
    response = await operation.handler(call)
    redirect = RedirectResponse(str(URL(following)), 303)
    leave_notice(redirect, _read_sentence(response))
    return redirect


def _make_body(operation: Operation, fields: dict[str, str]) -> Any:
    """The JSON of ``fields``: dots in names lead into objects, and a name with ``:number`` at its end has a number."""
    body: dict[str, Any] = {}
    for name, text in fields.items():
        words, _, is_number = name.partition(":")
        *path, last = words.split(".")
        level = body
        for part in path:
            level = level.setdefault(part, {})
            if not isinstance(level, dict):
                raise Problem(400, f"the form has {words[:60]!r} twice")
        level[last] = _parse_number(words, text) if is_number else text
    if operation.body is None or not body:
        return body
    try:
        return msgspec.to_builtins(msgspec.convert(body, operation.body, strict=False))
    except msgspec.ValidationError as error:
        raise Problem(400, str(error)) from None


def _parse_number(name: str, text: str) -> float:
    try:
        return int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else float(text)
    except ValueError:
        raise Problem(400, f"{name[:60]} is a number, not {text[:20]!r}") from None


def _read_sentence(response: Response) -> str:
    """What the answer of an operation says to people."""
    try:
        answer = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        return "done"
    if not isinstance(answer, dict):
        return "done"
    if isinstance(message := answer.get("message"), str):
        return message[:_LONGEST_SENTENCE]
    kind, text = answer.get("kind"), answer.get("type") or answer.get("name")
    return f"{kind} {text} is recorded" if isinstance(kind, str) and isinstance(text, str) else "done"
