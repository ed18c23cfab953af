"""The application: a request in, one operation of the table, a response out."""

from __future__ import annotations

import secrets
from collections import Counter
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from reconciler.access.rules import SUPERUSERS, Caller
from reconciler.access.store import AuditEntry
from reconciler.api.authentication import address_of
from reconciler.api.call import Call
from reconciler.api.idempotency import make_idempotent
from reconciler.api.openapi import openapi_document
from reconciler.api.page import login as page_login
from reconciler.api.page.actions import is_action, make_action, redirect_action
from reconciler.api.page.problems import is_page, respond_problem
from reconciler.api.page.sessions import PAGE
from reconciler.api.page.table import PAGES
from reconciler.api.problems import Problem, problem_of, problem_response
from reconciler.api.rate_limits import network_of
from reconciler.api.routes import (
    agents,
    apply,
    audit,
    changes,
    commands,
    container_exec,
    credentials,
    health,
    login,
    observing,
    operator,
    overviews,
    plans,
    reports,
    resources,
    users,
    watch,
    webhooks,
)
from reconciler.api.service import Api
from reconciler.api.table import PUBLIC, WEBSOCKET, Operation, OperationMatch, Routes
from reconciler.bugs import internal_error
from reconciler.logs import log
from reconciler.printable import truncate_text
from reconciler.queries.existence import did_you_mean


async def read_openapi(call: Call) -> Response:
    """The OpenAPI document of this server."""
    return call.respond(openapi_document(OPERATIONS, call.org))


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/openapi.json", read_openapi, "Read the OpenAPI document.", PUBLIC),
    *health.OPERATIONS,
    *credentials.OPERATIONS,
    *login.OPERATIONS,
    *page_login.OPERATIONS,
    *users.OPERATIONS,
    *webhooks.OPERATIONS,
    *agents.OPERATIONS,
    *audit.OPERATIONS,
    *operator.OPERATIONS,
    *observing.OPERATIONS,
    *overviews.OPERATIONS,
    *plans.OPERATIONS,
    *container_exec.OPERATIONS,
    *commands.OPERATIONS,
    *reports.OPERATIONS,
    *changes.OPERATIONS,
    *apply.OPERATIONS,
    *watch.OPERATIONS,
    *resources.OPERATIONS,
)
"""Every operation; where two paths match a request, the first counts."""

ROUTES, ROUTES_OF_PAGE = Routes(OPERATIONS), Routes((*OPERATIONS, *PAGES))

ANONYMOUS = Caller("")
"""The caller of an operation that needs no credential: no policy names it."""
_CALLER = "caller"
"""The member of a scope with the caller, once they are known: a page that reports a problem names them, too."""
_REFUSED = frozenset({401, 403})
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def make_app(api: Api) -> ASGIApp:
    """The application that answers requests with ``api``."""
    with_page = api.settings.api is not None and api.settings.api.page
    return _Application(api, ROUTES_OF_PAGE if with_page else ROUTES, with_page=with_page)


async def _answer_request(api: Api, request: Request, operation: Operation) -> Response:
    """Perform ``operation`` for the caller of ``request``, and append to the audit log what belongs there."""
    call = Call(request, api, ANONYMOUS)
    call.allow_body(operation.most_body)
    call.done_status = max(status for status in operation.answers if status < HTTPStatus.BAD_REQUEST)
    is_public = operation.permission == PUBLIC
    if is_public and not operation.credential:
        _limit_address(api, request)
    try:
        if not is_public:
            call.act_as(await api.authenticator.caller(request))
            request.scope[_CALLER] = call.caller
            _limit_caller(call)
        if request.path_params.get("org", api.settings.org) != api.settings.org:
            raise Problem(403, f"this server has the org {api.settings.org} alone")
        _check_parameters(call, operation)
        handler = make_idempotent(operation.handler) if operation.idempotent else operation.handler
        response = await handler(call)
    except Exception as error:
        problem = problem_of(error)
        if problem.status == HTTPStatus.UNAUTHORIZED or (is_public and operation.credential):
            _limit_address(api, request)
        if (operation.changes and problem.is_audited) or problem.status in _REFUSED:
            _append_audit_entry(call, problem.status, str(problem))
        raise
    if call.refusal is not None:
        _append_audit_entry(call, call.refusal.status, str(call.refusal))
    elif operation.changes:
        _append_audit_entry(call, response.status_code, call.done)
    return response


def _check_parameters(call: Call, operation: Operation) -> None:
    """Refuse a change with an unknown parameter: a dry run with a mistyped name would make it. Raises Problem 400."""
    accepted = (*operation.parameters, "fields")
    unknown = next((name for name in call.request.query_params if name not in accepted), None)
    if "dryRun" in operation.parameters and unknown is not None:
        raise Problem(400, f"a change has no parameter {unknown[:40]!r}{did_you_mean(unknown[:40], accepted)}")


def _limit_address(api: Api, request: Request) -> None:
    """Count a request over TCP without a valid credential for its address. Raises Problem 429.

    Those with one have a limit of their caller, so that no flood of others keeps them out.
    """
    if getattr(request.state, "peer", None) is None:
        api.address_limit.count(network_of(address_of(request)))


def _limit_caller(call: Call) -> None:
    """Count a request for its caller; the operator of this host can act in any flood. Raises Problem 429."""
    if getattr(call.request.state, "peer", None) is None or str(SUPERUSERS) not in call.caller.groups:
        call.api.caller_limit.count(call.caller.principal)


def _append_audit_entry(call: Call, outcome: int, message: str = "") -> None:
    """Append what the caller did to the audit log; the path is as the client sent it, without its query."""
    request = call.request
    entry = AuditEntry(
        at=call.api.clock.now(),
        principal=call.caller.principal,
        credential=call.caller.credential,
        address=address_of(request),
        action=request.method,
        target=truncate_text(request.url.path),
        request_id=request.scope["request_id"],
        outcome=outcome,
        message=truncate_text(message),
    )
    if outcome < HTTPStatus.BAD_REQUEST:
        call.api.store.append_audit([entry])
    else:
        call.api.refusals.add(entry, entry.principal or network_of(entry.address))


class _Application:
    """Finds the operation of each request, gives it an id, and turns every error into a response with it."""

    def __init__(self, api: Api, routes: Routes, *, with_page: bool) -> None:
        self._api = api
        self._routes = routes
        self._with_page = with_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        request_id = secrets.token_hex(8)
        began = False

        async def send_on(message: Any) -> None:
            nonlocal began
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                began = True
                extra = {**_HEADERS, "X-Request-Id": request_id}
                present = {name for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in extra.items()]
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in present)]
            await send(message)

        scope.update(request_id=request_id, routes=self._routes)
        scope["client_address"] = self._api.proxies.client_address(scope)
        try:
            _refuse_ambiguous(scope)
            scope = redirect_action(scope) if self._with_page else scope
            is_websocket = scope["type"] == "websocket"
            # A WebSocket begins with a request, which is decided on as any other.
            asked = {**scope, "type": "http", "method": "GET"} if is_websocket else scope
            request = Request(asked, receive)
            operation, asked["path_params"] = self._find(request)
            operation = make_action(operation) if is_action(request) else operation
            asked[PAGE] = operation.page
            if is_websocket and operation.media != WEBSOCKET:
                raise Problem(400, "there is no WebSocket here")
            response = await _answer_request(self._api, request, operation)
            await response(scope, receive, send_on)
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                internal_error(error, f"API {scope['method']}", request_id)
            if began:
                log().warning("api", id=request_id, message="the response was cut off")
                raise
            await self._respond_problem(scope, problem)(scope, receive, send_on)

    def _respond_problem(self, scope: Scope, problem: Problem) -> Response:
        """The response that reports ``problem``: to a browser by a page, or by the one on which people log in."""
        if not self._with_page or scope["type"] != "http" or not is_page(scope):
            return problem_response(problem, scope["request_id"])
        return respond_problem(Call(Request(scope), self._api, scope.get(_CALLER, ANONYMOUS)), problem)

    def _find(self, request: Request) -> OperationMatch:
        try:
            return self._routes.find(request.method, request.scope["path"])
        except Problem:
            _limit_address(self._api, request)
            raise


def _refuse_ambiguous(scope: Scope) -> None:
    """Refuse what a proxy in front could read in another way: two lengths, hosts or credentials, or no host."""
    counts = Counter(name for name, _ in scope["headers"])
    close = {"Connection": "close"}
    if {b"transfer-encoding", b"content-length"} <= counts.keys():
        raise Problem(400, "a request has Transfer-Encoding or Content-Length, not both", headers=close)
    if counts[b"host"] > 1 or (scope.get("http_version") == "1.1" and not counts[b"host"]):
        raise Problem(400, "a request has one header `Host`", headers=close)
    if counts[b"authorization"] > 1:
        raise Problem(400, "a request has one header `Authorization`", headers=close)
