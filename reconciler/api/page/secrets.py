"""The values of a secret, for those who may reveal them: for a minute, and noted in the audit log."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.page.actions import read_form
from reconciler.api.page.rendering import render_page
from reconciler.api.page.resources import REVEAL
from reconciler.api.routes.resources import read_data
from reconciler.api.table import make_page_operation

SHOWN_SECONDS = 60
"""After how many seconds a page hides the values again."""


async def show_values(call: Call) -> Response:
    """The values of a secret. A form asks for them, since an address would be kept in the history of the browser."""
    key = call.existing(REVEAL)
    await read_form(call)
    data = await read_data(call, key)
    fields = data.items() if isinstance(data, dict) else [("", data)]
    values = {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in fields}
    return render_page(call, "secret.html", key=key, values=values, seconds=SHOWN_SECONDS)


PAGES = (
    make_page_operation("/ui/reveal/secret/{name}", show_values, "The values of a secret.", REVEAL)._replace(
        method="POST", changes=True
    ),
)
