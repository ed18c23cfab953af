"""Messages: what was sent to whom, as `reconciler notify` shows it."""

from __future__ import annotations

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.rendering import render_page
from reconciler.api.page.sharing import share_view
from reconciler.api.routes.overviews import require_everything
from reconciler.api.table import OVERVIEW, make_page_operation
from reconciler.errors import NotFoundError
from reconciler.notifications.bodies import format_text
from reconciler.queries.notifications import find_notification, list_notifications

_MOST = 1_000
_SHOWN = 50
_MOST_DIGITS = 19


async def show_notifications(call: Call) -> Response:
    """The last messages."""
    require_everything(call)
    last = call.count("last", _SHOWN, _MOST)
    messages = await call.apart(lambda: list_notifications(call.reader.records, last))
    mutes = await call.apart(lambda: call.reader.records.mutes.all())
    is_on = call.api.settings.notifications is not None
    return render_page(call, "notifications.html", messages=messages, mutes=mutes, last=last, most=_MOST, is_on=is_on)


async def show_notification(call: Call) -> Response:
    """One message, with its text."""
    require_everything(call)
    text = call.request.path_params["id"]
    if not text.isdecimal() or len(text) >= _MOST_DIGITS:
        raise NotFoundError(f"there is no message {text[:20]}")
    listed = await call.apart(lambda: find_notification(call.reader.records, int(text)))
    return render_page(call, "notification.html", listed=listed, lines=format_text(listed.message).splitlines())


PAGES = (
    share_view(make_page_operation("/ui/notifications", show_notifications, "What was sent.", OVERVIEW, ("last",))),
    share_view(make_page_operation("/ui/notifications/{id}", show_notification, "One message.", OVERVIEW)),
)
