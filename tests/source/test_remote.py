"""Remotes over https and ssh: what is fetched, what is pushed, and what becomes of trouble."""

from __future__ import annotations

import os
import subprocess
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconciler.errors import PushConflict, PushRefused, SourceError, SourceNotFound, SourceUnreachable
from reconciler.iteration import Progress, report_progress_to
from reconciler.settings import Credentials, SourceSettings
from reconciler.source.git_command import LAST_BYTES, clean_environment, run_git
from reconciler.source.mirror import Mirror
from reconciler.source.source import Source
from reconciler.source.url import RepositoryAddress
from tests.source.conftest import Opener
from tests.support.certificates import authority
from tests.support.git import SSHD, GitRepo, HttpsServer, SshServer, git

TOKEN = "s3cret-t0ken"
STATUS = "refs/heads/reconciler/status"


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy stands between the tests and this machine."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")


@pytest.fixture
def server(tmp_path: Path, repo: GitRepo, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpsServer]:
    """The repository over https."""
    with HttpsServer(repo.path.parent, tmp_path, TOKEN) as running:
        monkeypatch.setenv("GIT_SSL_CAINFO", str(running.certificate))
        yield running


@pytest.fixture
def https(tmp_path: Path, server: HttpsServer, opener: Opener) -> Opener:
    """Opens ``manifests.git`` over https with a token of one's choice."""

    def opened(*, token: str = TOKEN, name: str = "manifests.git", **settings: object) -> Source:
        token_file = tmp_path / "it's a token"
        token_file.write_text(token + "\n")
        return opener(server.url(name), credentials=Credentials("ada", token_file=token_file), **settings)

    return opened


def _refs(source: Source) -> list[str]:
    return GitRepo(mirror_of(source).path).git("for-each-ref", "--format=%(refname)").splitlines()


def mirror_of(source: Source) -> Mirror:
    assert source.mirror is not None
    return source.mirror


def test_a_fetch_reports_its_objects_and_errors_stay_without_them(repo: GitRepo, https: Opener) -> None:
    repo.commit({f"shop/{number}.yaml": str(number) for number in range(120)})  # of few, Git counts none
    reports: list[Progress] = []
    with report_progress_to(reports.append):
        source = https()
        source.refresh()
        assert reports[-1].what == "fetching objects"
        assert reports[-1].done == reports[-1].total > 120
        with pytest.raises(SourceNotFound) as refused:
            https(branch="nowhere").refresh()
    assert source.revision().commit == repo.git("rev-parse", "main")
    assert "couldn't find remote ref refs/heads/nowhere" in str(refused.value)
    assert "objects" not in str(refused.value)


def test_https_fetches_what_was_committed_force_pushed_or_not(repo: GitRepo, https: Opener) -> None:
    source = https()
    with pytest.raises(SourceNotFound):
        source.revision()
    source.refresh()
    first = source.revision()
    assert not source.local
    second = repo.commit({"shop/api.yaml": "a"})
    source.refresh()
    assert source.repository.contains(source.revision().commit, first.commit)
    [change] = source.repository.changes(first.tree, source.revision().tree)
    assert source.repository.read(change.after) == b"a"
    repo.commit({"shop/api.yaml": "b"}, parent="")
    source.refresh()
    assert not source.repository.contains(source.revision().commit, second)


def test_only_the_wanted_ref_is_fetched(repo: GitRepo, https: Opener) -> None:
    first = repo.git("rev-parse", "main")
    repo.git("tag", "v1", "main")
    repo.commit({"a.yaml": "a"}, branch="other")
    last = repo.commit({"b.yaml": "b"})
    for settings, commit in (({"branch": "main"}, last), ({"tag": "v1"}, first), ({"commit": first}, first)):
        source = https(**settings)
        source.refresh()
        source.refresh()
        assert source.revision().commit == commit
    assert _refs(source) == ["refs/heads/main", "refs/reconciler/commit", "refs/tags/v1"]


def test_a_wrong_token_is_unreachable_and_never_shown(https: Opener) -> None:
    with pytest.raises(SourceUnreachable, match="Authentication failed") as failure:
        https(token="wr0ng-s3cret").refresh()
    assert "wr0ng" not in str(failure.value)


def test_a_token_file_that_cannot_be_read_is_named(tmp_path: Path, server: HttpsServer, opener: Opener) -> None:
    credentials = Credentials(token_file=tmp_path / "absent")
    with pytest.raises(SourceUnreachable, match=r"token file .*absent cannot be read: No such file"):
        opener(server.url("manifests.git"), credentials=credentials).refresh()


def test_a_server_with_an_untrusted_certificate_is_unreachable(https: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GIT_SSL_CAINFO")
    with pytest.raises(SourceUnreachable, match="certificate"):
        https().refresh()


def test_a_server_is_trusted_by_the_authorities_of_the_source_alone(
    server: HttpsServer, tmp_path: Path, repo: GitRepo, opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    monkeypatch.delenv("GIT_SSL_CAINFO")

    def opened(ca_file: Path | None) -> Source:
        credentials = Credentials("ada", token_file=token_file, ca_file=ca_file)
        return opener(server.url("manifests.git"), credentials=credentials)

    with pytest.raises(SourceUnreachable, match=r"certificate.*; name the file with its authority as credentials\.caF"):
        opened(None).refresh()
    stranger = tmp_path / "stranger.pem"
    stranger.write_bytes(authority().chain_pem)
    with pytest.raises(SourceUnreachable, match=r"; \S*stranger.pem has no authority that signed its certificate"):
        opened(stranger).refresh()
    with pytest.raises(SourceUnreachable, match=r"file of authorities \S*absent.pem cannot be read: No such file"):
        opened(tmp_path / "absent.pem").refresh()
    monkeypatch.setenv("GIT_SSL_CAINFO", str(stranger))  # that of the source counts
    source = opened(server.certificate)
    source.refresh()
    commit = source.revision().commit
    assert commit == repo.git("rev-parse", "main")
    mirror_of(source).push(f"{commit}:{STATUS}", "")
    assert mirror_of(source).fetch_ref(STATUS) == commit


def test_a_remote_with_sha256_is_refused(tmp_path: Path, server: HttpsServer, https: Opener) -> None:
    wide = server.root / "wide.git"
    git(tmp_path, "init", "--quiet", "--bare", "--object-format=sha256", str(wide))
    tree = git(wide, "hash-object", "-t", "tree", "-w", "--stdin")
    git(wide, "update-ref", "refs/heads/main", git(wide, "commit-tree", "-m", "Begin", tree))
    with pytest.raises(SourceUnreachable, match=r"mismatched algorithms.*only repositories with SHA-1"):
        https(name="wide.git").refresh()


def test_a_missing_branch_or_repository_is_gone_and_what_was_fetched_stays(repo: GitRepo, https: Opener) -> None:
    source = https()
    source.refresh()
    repo.git("branch", "-m", "main", "elsewhere")
    with pytest.raises(SourceNotFound, match="refs/heads/main"):
        source.refresh()
    assert source.revision().ref == "main"
    with pytest.raises(SourceNotFound, match="not found"):
        https(name="absent.git").refresh()
    with pytest.raises(SourceNotFound, match="no commit 1111"):
        https(commit="1" * 40).refresh()


def test_a_redirect_is_followed_only_with_leave(repo: GitRepo, server: HttpsServer, https: Opener) -> None:
    with pytest.raises(SourceUnreachable, match="redirects to another address; name that one in url"):
        https(name="moved/manifests.git").refresh()
    assert [line for line in server.lines if "/moved/" not in line] == []
    source = https(name="moved/manifests.git", follow_redirects=True)
    source.refresh()
    assert source.revision().commit == repo.git("rev-parse", "main")


def test_the_end_of_endless_output_is_returned(tmp_path: Path) -> None:
    flood = "yes | head -c 3000000 >&2; yes | head -c 3000000; echo last >&2; echo end"
    answer = run_git(["sh", "-c", flood], tmp_path, clean_environment(), 60.0)
    assert answer is not None
    assert len(answer.errors) == len(answer.output) == LAST_BYTES
    assert answer.errors.endswith("last\n")
    assert answer.output.endswith("end\n")


def test_an_endless_answer_takes_little_memory(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        assert run_git(["sh", "-c", "yes >&2"], tmp_path, clean_environment(), 0.5) is None
        assert tracemalloc.get_traced_memory()[1] < 20 * LAST_BYTES
    finally:
        tracemalloc.stop()


def test_a_remote_that_breaks_off_is_unreachable_and_the_next_fetch_works(server: HttpsServer, https: Opener) -> None:
    source = https()
    server.trouble = "cut"
    with pytest.raises(SourceUnreachable):
        source.refresh()
    server.trouble = ""
    source.refresh()
    assert source.revision().ref == "main"


def test_a_remote_that_hangs_is_left_at_the_deadline_with_all_that_was_started(
    server: HttpsServer, https: Opener
) -> None:
    server.trouble = "hang"
    source = https(timeout=1.0)
    with pytest.raises(SourceUnreachable, match="did not answer within 1 s"):
        source.refresh()
    assert not [line for line in _commands() if server.url("manifests.git") in line]


def _commands() -> list[str]:
    """The command lines of all processes that have not ended."""
    command_lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command_lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return command_lines


def test_no_process_shows_the_token(server: HttpsServer, https: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    begin = subprocess.Popen

    def noted(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        shown.append(f"{command} {options['env']}")
        return begin(command, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr("reconciler.source.git_command.subprocess.Popen", noted)
    https().refresh()
    assert shown
    assert not [line for line in shown if TOKEN in line]


def test_an_address_without_a_listener_has_one_message_for_all_tries(opener: Opener) -> None:
    with pytest.raises(SourceUnreachable, match="Failed to connect to 127") as caught:
        opener("https://127.0.0.1:1/m.git").refresh()
    assert " ms" not in str(caught.value), "how long a try takes differs from try to try"


def test_a_push_lands_only_on_what_it_was_built_on(repo: GitRepo, https: Opener) -> None:
    ours, theirs = (_writer(https, name) for name in ("ours", "theirs"))
    assert ours.fetch_ref(STATUS) == ""
    first = _commit(ours, "")
    ours.push(f"{first}:{STATUS}", "")
    with pytest.raises(PushConflict, match="moved by another push"):
        theirs.push(f"{_commit(theirs, '')}:{STATUS}", "")
    assert theirs.fetch_ref(STATUS) == first
    second = _commit(theirs, first)
    theirs.push(f"{second}:{STATUS}", first)
    assert repo.git("rev-parse", STATUS) == second
    with pytest.raises(PushConflict):
        ours.push(f"{_commit(ours, first)}:{STATUS}", first)
    ours.push(f"{_commit(ours, '')}:{STATUS}", second)


def _writer(https: Opener, name: str) -> Mirror:
    mirror = mirror_of(https())
    mirror.path = mirror.path.with_name(f"{name}.git")
    mirror.prepare()
    return mirror


def _commit(mirror: Mirror, parent: str) -> str:
    return GitRepo(mirror.path).commit(
        {f"{mirror.path.name}.yaml": "s"}, f"Status of {mirror.path.name}", branch="made", parent=parent
    )


def test_a_push_that_the_remote_declines_is_an_error(repo: GitRepo, https: Opener) -> None:
    hook = repo.path / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    mirror = _writer(https, "ours")
    with pytest.raises(SourceError, match=r"declined .*pre-receive hook declined"):
        mirror.push(f"{_commit(mirror, '')}:{STATUS}", "")


def test_a_lock_of_a_killed_git_stops_no_fetch(repo: GitRepo, https: Opener) -> None:
    source = https()
    source.refresh()
    newest = repo.commit({"late.yaml": "late"})
    lock = mirror_of(source).path / "refs/heads/main.lock"
    lock.touch()
    with pytest.raises(SourceUnreachable, match="cannot lock ref"):
        source.refresh()
    os.utime(lock, (1, 1))
    source.refresh()
    assert source.revision().commit == newest


def test_two_processes_may_fetch_at_once(repo: GitRepo, https: Opener) -> None:
    sources = [https() for _ in range(4)]
    for number in range(5):
        newest = repo.commit({"late.yaml": str(number)})
        with ThreadPoolExecutor(len(sources)) as pool:
            list(pool.map(lambda source: source.refresh(), sources))
        assert sources[0].revision().commit == newest


def test_many_processes_may_make_the_mirror_at_once(tmp_path: Path) -> None:
    settings = SourceSettings(name="main", url="https://git.example.com/r.git", branch="main")
    for number in range(20):
        mirrors = [
            Mirror(settings, RepositoryAddress(settings.url, "https"), tmp_path / f"{number}.git") for _ in range(8)
        ]
        with ThreadPoolExecutor(len(mirrors)) as pool:
            made = list(pool.map(Mirror.prepare, mirrors))
        assert (made[0] / "HEAD").is_file()


@pytest.mark.parametrize("taken", ["reconciler", "reconciler/status/old"])
def test_a_branch_in_the_way_of_a_pushed_one_is_named(repo: GitRepo, https: Opener, taken: str) -> None:
    repo.git("branch", taken, "main")
    source = https()
    source.refresh()
    with pytest.raises(PushRefused, match=rf"has refs/heads/{taken}, .*; rename that branch, or give another status"):
        mirror_of(source).push(f"{source.revision().commit}:{STATUS}", "")


def test_ssh_fetches_and_pushes_with_the_sources_own_key_and_known_hosts(
    tmp_path: Path, repo: GitRepo, opener: Opener
) -> None:
    if not SSHD:
        if os.environ.get("CI") == "true":
            pytest.fail("sshd is not installed")
        pytest.skip("sshd is not installed")
    with SshServer(tmp_path) as server:
        credentials = Credentials(key_file=server.client_key, known_hosts=server.known_hosts)
        source = opener(server.url(repo.path), credentials=credentials)
        source.refresh()
        assert source.revision().commit == repo.git("rev-parse", "main")
        mirror = mirror_of(source)
        mirror.push(f"{source.revision().commit}:{STATUS}", "")
        assert mirror.fetch_ref(STATUS) == source.revision().commit
        (tmp_path / "nobody").touch()
        stranger = Credentials(key_file=server.client_key, known_hosts=tmp_path / "nobody")
        with pytest.raises(SourceUnreachable, match="Host key verification failed") as unknown:
            opener(server.url(repo.path), credentials=stranger).refresh()
        advice = f"is not in {tmp_path / 'nobody'}: get it by `ssh-keyscan -p {server.port} 127.0.0.1`"
        assert advice in str(unknown.value)
        server.client_key.chmod(0o644)
        with pytest.raises(SourceUnreachable, match=r"ssh does not use \S*/client, since others may read it: chmod"):
            opener(server.url(repo.path), credentials=credentials).refresh()
        server.client_key.chmod(0o600)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
        refused = Credentials(key_file=tmp_path / "other", known_hosts=server.known_hosts)
        with pytest.raises(SourceUnreachable, match="Permission denied"):
            opener(server.url(repo.path), credentials=refused).refresh()
        with pytest.raises(SourceNotFound, match="does not appear to be a git repository"):
            opener(server.url(tmp_path / "absent.git"), credentials=credentials).refresh()
