"""A real Gitea: its API without its pages; `python -m tests.notifications.forges.gitea` builds it, once."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from tests.kubernetes.cluster.build import NO_GO, find_go
from tests.support.processes import free_ports
from tests.support.waiting import PATIENCE

VERSION = "v1.26.0"
MODULE = "code.gitea.io/gitea"
TAGS = "sqlite sqlite_unlock_notify"
NEEDED = ("templates", "options", "public", "custom")
"""Folders of the source that the program reads."""
PASSWORD = "right-password-1"
_CONFIG = """
APP_NAME = tests
RUN_MODE = prod
I_AM_BEING_UNSAFE_RUNNING_AS_ROOT = true
[server]
HTTP_ADDR = 127.0.0.1
HTTP_PORT = {port}
ROOT_URL = http://127.0.0.1:{port}/
STATIC_ROOT_PATH = {source}
DISABLE_SSH = true
OFFLINE_MODE = true
[database]
DB_TYPE = sqlite3
PATH = {work}/gitea.db
[security]
INSTALL_LOCK = true
SECRET_KEY = tests
PASSWORD_HASH_ALGO = pbkdf2_v2
[log]
MODE = console
LEVEL = Warn
[cron]
ENABLED = false
[actions]
ENABLED = false
[indexer]
ISSUE_INDEXER_TYPE = db
[repository]
ROOT = {work}/repositories
[queue]
TYPE = channel
"""


class GiteaMissing(Exception):
    """Gitea was not built, or cannot be."""


class Gitea(NamedTuple):
    """A running Gitea: its ``url``, and tokens of the user ``ann``, who has all repositories, and of ``eve``."""

    url: str
    ann: str
    eve: str

    def call(self, method: str, path: str, body: object = None, *, token: str = "") -> Any:
        """One request to the API; its answer as JSON values."""
        headers = {"Authorization": f"token {token or self.ann}"}
        answer = httpx2.request(method, f"{self.url}/api/v1{path}", json=body, headers=headers, timeout=PATIENCE)
        assert answer.status_code < 300, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def push_url(self, path: str, user: str = "ann") -> str:
        """Where ``user`` pushes to the repository ``path``."""
        return f"{self.url.replace('://', f'://{user}:{PASSWORD}@')}/{path}.git"


def find_program() -> Path | None:
    """The built program; None where it was not built."""
    program = _find_cache() / "gitea"
    return program if program.exists() else None


def build_program() -> Path:
    """The program; builds it unless the cache has it. Raises GiteaMissing with what Go printed."""
    cache = _find_cache()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "gitea").exists():
            _compile_program(cache)
    return cache / "gitea"


def _find_cache() -> Path:
    """Outside the tree: a clean checkout builds nothing again."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "reconciler-tests" / "gitea" / VERSION


def _compile_program(cache: Path) -> None:
    go = find_go()
    if go is None:
        raise GiteaMissing(NO_GO)
    with tempfile.TemporaryDirectory() as empty:
        (Path(empty) / "go.mod").write_text("module download\n")
        module = json.loads(_run_go([go, "mod", "download", "-json", f"{MODULE}@{VERSION}"], Path(empty)))
    # Its go.mod replaces modules, which counts only for the main module: so the build begins in a copy of it.
    source = cache / "unfinished-source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(module["Dir"], source, copy_function=shutil.copyfile)
    _allow_writes(source)
    unfinished = cache / "unfinished-gitea"
    build = [go, "build", "-trimpath", "-buildvcs=false", f"-tags={TAGS}", "-ldflags=-s -w", "-o", str(unfinished), "."]
    _run_go(build, source)
    shutil.rmtree(cache / "source", ignore_errors=True)
    for name in NEEDED:
        if (source / name).is_dir():
            shutil.copytree(source / name, cache / "source" / name)
    shutil.rmtree(source)
    unfinished.rename(cache / "gitea")


def _allow_writes(source: Path) -> None:
    """Files of the cache of modules are for reading only, and so are folders."""
    for path in (source, *source.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)


def _run_go(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode:
        raise GiteaMissing(f"Gitea {VERSION} cannot be built: {done.stderr.strip()[-4000:]}")
    return done.stdout


@contextmanager
def run_gitea(work: Path) -> Iterator[Gitea]:
    """A Gitea with its data in ``work``, and two users. Raises GiteaMissing."""
    program = find_program()
    if program is None:
        raise GiteaMissing("Gitea is not built: python -m tests.notifications.forges.gitea")
    [port] = free_ports(1)
    work.mkdir(parents=True, exist_ok=True)
    config = work / "app.ini"
    config.write_text(_CONFIG.format(port=port, work=work, source=program.parent / "source"))
    command = [str(program), "--work-path", str(work), "--config", str(config)]
    environment = {"PATH": os.environ["PATH"], "HOME": str(work), "GIT_CONFIG_NOSYSTEM": "1"}

    def run(*words: str) -> str:
        done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("migrate")
    tokens = []
    for user in ("ann", "eve"):
        named = ["--username", user]
        run("admin", "user", "create", *named, "--password", PASSWORD, "--email", f"{user}@example.com",
            "--must-change-password=false")  # fmt: skip
        tokens.append(run("admin", "user", "generate-access-token", *named, "--scopes", "all", "--raw").split()[-1])
    with (
        (work / "web.log").open("w") as log,
        subprocess.Popen([*command, "web"], env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            gitea = Gitea(f"http://127.0.0.1:{port}", *tokens)
            _wait_until_ready(gitea, server)
            yield gitea
        finally:
            server.terminate()
            server.wait(PATIENCE)


def push_branch(repository: Path, url: str, branch: str) -> None:
    """Push ``branch`` to ``url``. Raises CalledProcessError."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(repository), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "push", "--quiet", url, branch]
    subprocess.run(command, cwd=repository, env=environment, capture_output=True, check=True)


def _wait_until_ready(gitea: Gitea, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 2 * PATIENCE
    while True:
        try:
            gitea.call("GET", "/user")
        except (httpx2.HTTPError, AssertionError):
            assert server.poll() is None, "Gitea ended"
            assert time.monotonic() < deadline, "Gitea does not answer"
            time.sleep(0.1)
        else:
            return


def main() -> int:
    """Build what the cache lacks; 0, too, where Go is missing and this is not CI."""
    if find_program() is None and find_go() is None and not os.environ.get("CI"):
        print(f"{NO_GO}; without it the tests with a real Gitea are left out", file=sys.stderr)
        return 0
    try:
        build_program()
    except GiteaMissing as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
