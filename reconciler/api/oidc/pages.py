"""The pages that a browser shows during a login: plain HTML without scripts."""

from __future__ import annotations

from html import escape

from starlette.responses import Response

from reconciler.api.problems import HTML

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>reconciler</title>
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 4rem auto; padding: 0 1rem; }}
input, button {{ font: inherit; padding: .4rem .8rem; }}</style>
</head><body>{body}</body></html>
"""


def confirm_page(email: str, sealed: str, user_code: str) -> Response:
    """The page at which ``email`` enters the code of a machine; ``sealed`` proves who they are."""
    return _render_page(f"""<h1>Log in on another machine</h1>
<p>You are {escape(email)}. Enter the code that the machine shows. Allow it only if you have just begun this login
yourself: the machine gets your permissions.</p>
<form method="post" action="device/answer">
<input type="hidden" name="identity" value="{escape(sealed)}">
<p><label>Code <input name="user_code" value="{escape(user_code)}" autocomplete="off" required></label></p>
<p><button name="answer" value="allow">Allow</button> <button name="answer" value="deny">Refuse</button></p>
</form>""")


def message_page(title: str, text: str, status: int = 200) -> Response:
    """A page with one sentence."""
    return _render_page(f"<h1>{escape(title)}</h1><p>{escape(text)}</p>", status)


def _render_page(body: str, status: int = 200) -> Response:
    return Response(_PAGE.format(body=body), status, _HEADERS, HTML)
