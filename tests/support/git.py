"""Real Git for tests: repositories made from dicts, and servers that speak https and ssh."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import getpass
import os
import re
import shutil
import socketserver
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pygit2

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or ""
"""The absolute path of sshd, or nothing where OpenSSH's server is not installed."""

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    "GIT_ALLOW_PROTOCOL": "file",
}


@dataclass(frozen=True)
class Symlink:
    """A symbolic link to ``target``, for ``GitRepo.commit``."""

    target: str


@dataclass(frozen=True)
class Submodule:
    """A submodule at ``commit``, for ``GitRepo.commit``."""

    commit: str = "1" * 40


File = str | bytes | Symlink | Submodule | None
"""The content of a path in a commit: text, bytes, an odd entry, or ``None`` to delete it."""

Files = Mapping[str, File] | Mapping[bytes, File] | Mapping[str | bytes, File]
"""Files by path; bytes where a path is not UTF-8."""


def git(path: Path, *arguments: str, stdin: bytes = b"") -> str:
    """Run git in ``path``, without any configuration; its output without the newline at the end."""
    done = subprocess.run(["git", *arguments], cwd=path, env=ENVIRONMENT, input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode()}{done.stdout.decode(errors='replace')}")
    return done.stdout.decode().removesuffix("\n")


_PLAIN = re.compile(r"(?!.*\.git)[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)


@functools.cache
def _empty(bare: bool) -> Path:
    """A repository without a commit, made once for this process; copies cost a tenth of a process."""
    folder = tempfile.mkdtemp(prefix="reconciler-empty-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "repository")
    path.mkdir()
    git(path, "init", "--quiet", "--template=", "--initial-branch=main", *(["--bare"] if bare else []))
    for name in ("hooks", "info"):
        (path if bare else path / ".git").joinpath(name).mkdir()
    return path


class GitRepo:
    """A repository to write to. ``commit`` makes objects and moves the branch; a work tree is left as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._time = 1_700_000_000

    @classmethod
    def create(cls, path: Path, files: Files | None = None, *, bare: bool = True) -> GitRepo:
        """A new repository at ``path``, with ``files`` in a first commit on ``main`` where there are any."""
        shutil.copytree(_empty(bare), path, dirs_exist_ok=True)
        repo = cls(path)
        if files:
            repo.commit(files)
        return repo

    def git(self, *arguments: str) -> str:
        """Run git in this repository."""
        return git(self.path, *arguments)

    def commit(
        self,
        files: Files,
        message: str = "Change",
        *,
        branch: str = "main",
        parent: str | None = None,
        whole: bool = False,
    ) -> str:
        """Commit ``files`` on top of the branch and return the commit's id.

        ``parent`` starts from another commit instead (``""``: from none, so history is rewritten); with ``whole`` the
        files are the entire tree.
        """
        ref = f"refs/heads/{branch}"
        start = self._tip(ref) if parent is None else parent
        self._time += 1
        if parent is None and not whole and _is_plain(files):
            with contextlib.suppress(pygit2.GitError, OSError, KeyError, ValueError):
                return self._write(ref, start, files, message)
        return self._import(ref, start, files, message, whole)

    def _write(self, ref: str, start: str, files: Files, message: str) -> str:
        """The commit that ``_import`` makes too, but without a process, which most commits of tests do not need."""
        repo, index = pygit2.Repository(str(self.path)), pygit2.Index()
        if start:
            index.read_tree(repo[start].peel(pygit2.Tree))
        paths = {entry.path for entry in index} | {str(path) for path in files}
        if not paths.isdisjoint(path[: slash.start()] for path in paths for slash in re.finditer("/", path)):
            raise ValueError("a file takes the place of a folder, or a folder that of a file")
        for path, file in files.items():
            if file is None:
                index.remove(path)  # a folder, or nothing, raises OSError
            else:
                blob = repo.create_blob(file.encode() if isinstance(file, str) else file)
                index.add(pygit2.IndexEntry(path, blob, pygit2.enums.FileMode.BLOB))
        ada = pygit2.Signature("Ada", "ada@example.com", self._time)
        parents = [start] if start else []
        return str(repo.create_commit(ref, ada, ada, message, index.write_tree(repo), parents))

    def _import(self, ref: str, start: str, files: Files, message: str, whole: bool) -> str:
        lines = [b"commit " + ref.encode(), b"mark :1", b"committer Ada <ada@example.com> %d +0000" % self._time]
        lines += [b"data %d" % len(message.encode()), message.encode()]
        lines += [b"from " + start.encode()] if start else []
        lines += [b"deleteall"] if whole else []
        lines += [line for path, file in files.items() for line in _change(path, file)]
        if not start:
            lines.insert(0, b"reset " + ref.encode())
        stream = b"\n".join([*lines, b"get-mark :1", b""])
        return git(self.path, "fast-import", "--quiet", "--force", stdin=stream)

    def _tip(self, ref: str) -> str:
        found = pygit2.Repository(str(self.path)).references.get(ref)
        return "" if found is None else str(found.target)

    def clone_bare(self, path: Path) -> GitRepo:
        """A bare clone at ``path``."""
        git(self.path, "clone", "--quiet", "--bare", str(self.path), str(path))
        return GitRepo(path)


def _is_plain(files: Files) -> bool:
    """Whether all are texts or bytes at paths that mean the same to every Git."""
    texts = all(file is None or isinstance(file, str | bytes) for file in files.values())
    return texts and all(isinstance(path, str) and _PLAIN.fullmatch(path) for path in files)


def _change(path: str | bytes, file: File) -> list[bytes]:
    raw = path.encode() if isinstance(path, str) else path
    escaped = raw.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    quoted = b'"' + escaped + b'"'
    if file is None:
        return [b"D " + quoted]
    if isinstance(file, Submodule):
        return [b"M 160000 " + file.commit.encode() + b" " + quoted]
    mode = b"120000" if isinstance(file, Symlink) else b"100644"
    text = file.target if isinstance(file, Symlink) else file
    content = text.encode() if isinstance(text, str) else text
    return [b"M " + mode + b" inline " + quoted, b"data %d" % len(content), content]


class _Backend(BaseHTTPRequestHandler):
    """A bridge from one request to ``git http-backend``."""

    protocol_version = "HTTP/1.0"
    server: HttpsServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_request(self, *_: object) -> None:
        self.server.lines.append(self.requestline)

    def _answer(self) -> None:
        if self.path.startswith("/moved/"):
            self.send_response(301)
            self.send_header("Location", self.server.url(self.path.removeprefix("/moved/")))
            self.end_headers()
            return
        login = self.headers.get("Authorization", "").removeprefix("Basic ")
        user, _, token = base64.b64decode(login).decode().partition(":")
        if token != self.server.token:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="manifests"')
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        output = self._run(body, user)
        head, _, content = output.partition(b"\r\n\r\n")
        status = next((line[8:11] for line in head.split(b"\r\n") if line.startswith(b"Status: ")), b"200")
        self.wfile.write(b"HTTP/1.0 " + status + b" Answer\r\n" + head + b"\r\n\r\n")
        self.wfile.write(self._spoiled(content) if self.command == "POST" else content)

    def _spoiled(self, content: bytes) -> bytes:
        if self.server.trouble == "hang":
            self.server.over.wait()
        if self.server.trouble == "lose" and not self.path.endswith("/git-receive-pack"):
            return content
        return content[: len(content) // 2] if self.server.trouble else content

    def _run(self, body: bytes, user: str) -> bytes:
        path, _, query = self.path.partition("?")
        environment = ENVIRONMENT | {
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_USER": user,
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        command = ["git", "http-backend"]
        return subprocess.run(command, env=environment, input=body, capture_output=True, check=True).stdout


class HttpsServer(ThreadingHTTPServer):
    """Serves the repositories below ``root`` over TLS to clients that know ``token``; use it in a ``with``.

    What is asked for below ``moved/`` is redirected to where it is. ``trouble`` makes answers with objects end halfway
    (``"cut"``) or never come (``"hang"``); ``"lose"`` cuts the answers to pushes only.
    """

    def __init__(self, root: Path, scratch: Path, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Backend)
        self.root = root
        self.token = token
        self.trouble = ""
        self.lines: list[str] = []
        self.over = threading.Event()
        self.certificate = scratch / "certificate.pem"
        key = scratch / "certificate.key"
        command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -keyout {key} "
        command += f"-out {self.certificate} -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
        subprocess.run(command.split(), check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    def url(self, name: str) -> str:
        """The url of the repository ``name`` below the root."""
        return f"https://127.0.0.1:{self.server_port}/{name}"

    def shutdown_request(self, request: Any) -> None:
        """Close the TLS session before the connection, which GnuTLS insists on."""
        request.settimeout(0)
        with contextlib.suppress(OSError):
            request.unwrap()
        super().shutdown_request(request)

    def handle_error(self, request: object, address: object) -> None:
        """A client that hangs up, or does not trust the certificate, is what some tests are about."""

    def __enter__(self) -> HttpsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Login(socketserver.BaseRequestHandler):
    server: SshServer

    def handle(self) -> None:
        command = [SSHD, "-i", "-e", "-f", str(self.server.config)]
        subprocess.run(command, stdin=self.request, stdout=self.request, stderr=self.server.log, check=False)


class SshServer(socketserver.ThreadingTCPServer):
    """A real sshd, started for each connection, that lets the holder of ``client_key`` in; use it in a ``with``."""

    daemon_threads = True

    def __init__(self, scratch: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Login)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.client_key, host_key = scratch / "client", scratch / "host"
        for key in (self.client_key, host_key):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self.known_hosts = scratch / "known hosts"
        public = host_key.with_suffix(".pub").read_text().split()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n")
        self.log = (scratch / "sshd.log").open("w")
        self.config = scratch / "sshd_config"
        self.config.write_text(
            f"HostKey {host_key}\nAuthorizedKeysFile {self.client_key}.pub\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "PermitRootLogin prohibit-password\nPidFile none\n"
        )
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self.server_address[1])

    def url(self, path: Path) -> str:
        """The url of the repository at ``path``."""
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{path}"

    def __enter__(self) -> SshServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        self.log.close()
