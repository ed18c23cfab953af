"""The files of the page: our style and script, and what is of others, with its hash."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from starlette.responses import Response

from reconciler.api.call import Call
from reconciler.api.problems import Problem
from reconciler.api.table import PUBLIC, make_page_operation

_MEDIA = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_YEAR = 31_536_000
_HASH_LENGTH = 12
PATH = "/ui/asset"
_OWN = ("icon.svg", "logs.js", "page.css", "page.js", "terminal.js")

VENDORED: Mapping[str, str] = MappingProxyType(
    {
        "htmx.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
        "xterm.mjs": "b336ec65a086c056d4804b3d4c2347da5663d3f23c3f25be866467bd8857ad59",
        "xterm.css": "854a7c0fb70e8b1a083c16797ab827299fb18744f5ad34f227b48337e33293c6",
        "addon-fit.mjs": "2d87e1bddc73be9111de8beee5370c3bb7aac9c94e18e6f245f02ca741ef1769",
    }
)
"""Each file of others → its SHA-256, which a test compares; docs/page.md has the version and licence of each."""


@cache
def _read_assets() -> dict[str, bytes]:
    directory = files("reconciler.api.page").joinpath("static")
    return {name: directory.joinpath(name).read_bytes() for name in (*_OWN, *VENDORED)}


@cache
def list_assets() -> dict[str, str]:
    """Each file → its path, which changes with its content, so that browsers keep it for long."""
    return {
        name: f"{PATH}/{hashlib.sha256(content).hexdigest()[:_HASH_LENGTH]}/{name}"
        for name, content in _read_assets().items()
    }


@cache
def _compress_asset(name: str) -> bytes:
    return gzip.compress(_read_assets()[name], mtime=0)


async def read_asset(call: Call) -> Response:
    """A file of the page."""
    name = call.request.path_params["name"]
    content = _read_assets().get(name)
    if content is None:
        raise Problem(404, "there is no such file")
    fresh = list_assets()[name] == call.request.url.path
    # A page of an older version gets the newer file, and asks again.
    keep = f"public, max-age={_YEAR}, immutable" if fresh else "no-cache"
    headers = {"Cache-Control": keep, "Vary": "Accept-Encoding"}
    # Pages stay as they are: the length of a compressed one could show the secret in it beside a guess of it.
    if "gzip" in call.request.headers.get("accept-encoding", ""):
        content, headers["Content-Encoding"] = _compress_asset(name), "gzip"
    return Response(content, 200, headers, _MEDIA[name[name.rindex(".") :]])


PAGES = (make_page_operation(f"{PATH}/{{hash}}/{{name}}", read_asset, "A file of the page.", PUBLIC),)
