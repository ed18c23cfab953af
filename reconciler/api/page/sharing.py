"""Views that open pages show again and again: made once for all that see the same, without what is around them."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.forms import make_form_token
from reconciler.api.page.rendering import HEADERS, is_refresh, read_address
from reconciler.api.page.views import SharedView, ViewStamp, mark_view
from reconciler.api.problems import HTML
from reconciler.api.table import Handler, Operation


def share_view(operation: Operation) -> Operation:
    """``operation``, whose view is made once for all open pages of callers with the same permissions."""
    return operation._replace(handler=partial(_answer_call, operation.handler))


def find_shared(operation: Operation) -> Handler | None:
    """What makes the view of ``operation``, if it is shared."""
    handler = operation.handler
    if not isinstance(handler, partial) or handler.func is not _answer_call:
        return None
    show_view: Handler = handler.args[0]
    return show_view


async def read_shared_view(show_view: Handler, call: Call) -> SharedView:
    """The view of ``call``, made for any session of callers with the same permissions. Raises what it raises."""
    reader = call.api.reader
    granted = reader.access().granted_principals(call.caller)
    stamp = ViewStamp(reader.records.data_version(), call.api.is_alive())

    async def make() -> SharedView:
        return mark_view(bytes((await show_view(call)).body), make_form_token(call.request).encode())

    return await call.api.page.views.read((read_address(call), granted), stamp, make)


async def _answer_call(show_view: Handler, call: Call) -> Response:
    if not is_refresh(call):
        return await show_view(call)
    view = await read_shared_view(show_view, call)
    return Response(view.content.replace(view.token, make_form_token(call.request).encode()), 200, HEADERS, HTML)
