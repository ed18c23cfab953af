"""A browser without scripts, as far as these tests need one: it keeps cookies, and sends the forms of a page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx2

from tests.support.api import ApiClient, ApiSandbox

HOST = "reconciler.example"


class Form(NamedTuple):
    """A form: where it goes, how, and its fields with their values."""

    action: str
    method: str
    fields: dict[str, str]


class FormParser(HTMLParser):
    """The forms of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if tag == "form":
            self.forms.append(Form(values.get("action", ""), values.get("method", "get"), {}))
        elif tag == "input" and self.forms and "name" in values:
            self.forms[-1].fields[values["name"]] = values.get("value", "")


class Browser:
    """Requests over TCP, with the cookies of the answers before."""

    def __init__(self, sandbox: ApiSandbox) -> None:
        self._sandbox = sandbox
        self._client: ApiClient = sandbox.client(None)
        self.cookies: dict[str, str] = {}

    def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """The answer to one request; redirects are not followed."""
        headers = {"Host": HOST, **more.pop("headers", {})}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        response = self._client.request(method, path, headers=headers, **more)
        for line in response.headers.get_list("set-cookie"):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
            if "Max-Age=0" in line:
                del self.cookies[name]
        return response

    def get(self, path: str, status: int = 200, **more: Any) -> str:
        """The page at ``path``."""
        response = self.request("GET", path, **more)
        assert response.status_code == status, response.text
        return response.text

    def forms(self, path: str) -> list[Form]:
        """The forms of the page at ``path``."""
        parser = FormParser()
        parser.feed(self.get(path))
        return parser.forms

    def form(self, path: str, action: str) -> Form:
        """The form of the page at ``path`` whose action ends with ``action``."""
        return next(form for form in self.forms(path) if form.action.endswith(action))

    def has_form(self, path: str, action: str) -> bool:
        """Whether the page at ``path`` offers ``action``."""
        return any(form.action.endswith(action) for form in self.forms(path))

    def send(self, form: Form, headers: dict[str, str] | None = None, **fields: str) -> httpx2.Response:
        """The answer to ``form`` with ``fields``."""
        content = urlencode(form.fields | {name.replace("__", "."): value for name, value in fields.items()})
        sent = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
        return self.request("POST", form.action, content=content, headers=sent)

    def log_in(self) -> Browser:
        """Log in by a link of this host's superuser."""
        link = self._sandbox.client().request("POST", "/login/link").json()["path"]
        response = self.request("GET", link)
        assert response.status_code == 303, response.text
        return self

    def log_in_as(self, account: str) -> Browser:
        """Log in with a new key of the service account ``account``."""
        key = self._sandbox.client().request("POST", f"/org/acme/serviceaccount/{account}/-key", json={})
        response = self.send(self.form("/ui/login", "/ui/login"), key=key.json()["key"])
        assert response.status_code == 303, response.text
        return self
