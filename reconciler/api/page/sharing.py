"""Views that open pages ask for again: made once for all that see the same, and sent without what is around them."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.forms import make_form_token
from reconciler.api.page.rendering import HEADERS, is_refresh, read_address
from reconciler.api.page.views import ViewStamp
from reconciler.api.problems import HTML
from reconciler.api.table import Handler, Operation


def share_view(operation: Operation) -> Operation:
    """``operation``, whose view is made once for all open pages of callers with the same permissions."""
    return operation._replace(handler=partial(_answer_call, operation.handler))


async def _answer_call(show_view: Handler, call: Call) -> Response:
    if not is_refresh(call):
        return await show_view(call)
    reader = call.api.reader
    granted = reader.access().granted_principals(call.caller)
    stamp = ViewStamp(reader.records.data_version(), call.api.is_alive())

    async def make() -> tuple[bytes, bytes]:
        return bytes((await show_view(call)).body), make_form_token(call.request).encode()

    content, token = await call.api.page.views.read((read_address(call), granted), stamp, make)
    return Response(content.replace(token, make_form_token(call.request).encode()), 200, HEADERS, HTML)
