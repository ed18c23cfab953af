"""OpenID providers over HTTP: a real one for people, and an issuer of tokens like that of a CI service."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from joserfc.jws import JWSRegistry

from tests.support.waiting import serving


class PeopleProvider:
    """A provider at ``issuer``, at which people log in."""

    def __init__(self, issuer: str, clients: list[str]) -> None:
        self.issuer = issuer
        self.clients = clients
        """How the client of each request for a token proved itself: in the header, in the form, or not."""

    def add_person(self, subject: str, **claims: Any) -> None:
        """Let ``subject`` log in, with ``claims``."""
        httpx2.put(f"{self.issuer}/users/{quote(subject)}", json=claims).raise_for_status()

    def log_in(self, url: str, subject: str, **form: str) -> str:
        """Where the provider sends a browser after ``subject`` logged in at ``url``."""
        answer = httpx2.post(url, data={"sub": subject, **form})
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]


class _Pkce:
    """Makes the provider demand the verifier of each code challenge, as those in use do."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._challenges: dict[str, str] = {}
        self.clients: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        query = parse_qs(environ["QUERY_STRING"])
        if environ["PATH_INFO"] == "/oauth2/token":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            environ["wsgi.input"] = io.BytesIO(body)
            fields = parse_qs(body.decode())
            header = "HTTP_AUTHORIZATION" in environ
            self.clients.append("header" if header else "form" if "client_secret" in fields else "none")
            if self._challenges.get(fields["code"][0]) != _challenge(fields.get("code_verifier", [""])[0]):
                start("400 Bad Request", [("Content-Type", "application/json")])
                return [b'{"error": "invalid_grant"}']

        def begin(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            found = parse_qs(urlsplit(dict(headers).get("Location", "")).query)
            if "code" in found and query.get("code_challenge_method") == ["S256"]:
                self._challenges[found["code"][0]] = query["code_challenge"][0]
            return start(status, headers, *more)

        found: Iterable[bytes] = self._app(environ, begin)
        return found


@contextmanager
def people_provider() -> Iterator[PeopleProvider]:
    """A provider that answers until the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the provider's package are not ours
        import oidc_provider_mock
        from oidc_provider_mock._app import AuthorizationCodeGrant
        from werkzeug.serving import make_server

        AuthorizationCodeGrant.TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post", "none"]
        app = _Pkce(oidc_provider_mock.app(require_nonce=True))
        server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield PeopleProvider(f"http://127.0.0.1:{server.server_port}", app.clients)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Issuer(ThreadingHTTPServer):
    """Signs tokens like a CI service; ``reads`` counts the requests for its keys."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.key = RSAKey.generate_key(2048, {"kid": "first"})
        self.published: dict[str, Any] = {"keys": [self.key.as_dict(private=False)]}
        self.metadata = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.reads = 0

    def rotate(self, name: str) -> None:
        """Sign with a new key, and publish it alone."""
        self.key = RSAKey.generate_key(2048, {"kid": name})
        self.published = {"keys": [self.key.as_dict(private=False)]}

    def token(self, now: float, alg: str = "RS256", **claims: Any) -> str:
        """A token of this moment; ``claims`` replace those that it has otherwise, None removes one."""
        usual = {"iss": self.url, "sub": "job", "aud": "reconciler", "iat": int(now), "exp": int(now) + 300}
        body = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        if alg == "none":
            return f"{_encoded({'alg': 'none', 'kid': self.key.kid})}.{_encoded(body)}."
        key = OctKey.import_key(json.dumps(self.published)) if alg.startswith("HS") else self.key
        header = {"alg": alg, "kid": self.key.kid}
        return jwt.encode(header, body, key, registry=JWSRegistry(algorithms=[alg]))


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        """Answer with the metadata or the keys."""
        document = self.server.metadata
        if self.path == "/keys":
            self.server.reads += 1
            document = self.server.published
        content = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


@contextmanager
def job_issuer() -> Iterator[Issuer]:
    """An issuer that answers until the end."""
    made = Issuer()
    with serving(made):
        yield made


def _challenge(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def _encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
