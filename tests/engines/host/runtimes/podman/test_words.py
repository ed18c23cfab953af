"""Errors of Podman and of the OCI runtime become sentences; what is not known keeps its words."""

from __future__ import annotations

import pytest

from reconciler.engines.host.runtimes.podman.api.answers import PodmanError
from reconciler.engines.host.runtimes.podman.api.words import find_sentence, read_log_message
from reconciler.engines.host.runtimes.podman.images import name_image
from reconciler.reasons import Reason

RUNC = "runc: runc create failed: unable to start container process: "
NOT_FOUND = ": OCI runtime attempted to invoke a command that was not found"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f'{RUNC}exec: "serve": executable file not found in $PATH{NOT_FOUND}',
            "the container has no program serve in its PATH",
        ),
        (
            f'{RUNC}exec: "/bin/x y": stat /bin/x y: no such file or directory{NOT_FOUND}',
            "the container has no program /bin/x y",
        ),
        (
            f'{RUNC}exec: "/etc/passwd": permission denied: OCI permission denied',
            "/etc/passwd may not be executed: its mode or user forbids it",
        ),
        (
            "unable to find user app: no matching entries in passwd file",
            "the container has no user app in its /etc/passwd",
        ),
        ('workdir "/app" does not exist on container 5b', "the container has no directory /app, its workingDir"),
        (
            'time="2026-11-29T10:00:00Z" level=error msg="exec failed: unable to start container process: exec: '
            '\\"no\\": executable file not found in $PATH"\n',
            "the container has no program no in its PATH",
        ),
        ("storage is locked", ""),
    ],
)
def test_a_sentence_names_what_cannot_start(text: str, sentence: str) -> None:
    assert find_sentence(text) == sentence


def test_an_error_keeps_the_reason_that_the_words_of_podman_have() -> None:
    error = PodmanError(f'Podman: {RUNC}exec: "serve": executable file not found in $PATH{NOT_FOUND}', status=500)
    assert (str(error), error.reason) == ("the container has no program serve in its PATH", Reason.PROGRAM_NOT_FOUND)
    assert str(PodmanError("Podman: storage is locked", status=500)) == "Podman: storage is locked"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('time="2026-11-29T10:00:00Z" level=error msg="cannot listen: \\"x\\""', 'cannot listen: "x"'),
        ("level=warning msg=short", "short"),
        ("Error: cannot resolve /home", "Error: cannot resolve /home"),
    ],
)
def test_the_message_of_a_logged_line_stands_alone(line: str, message: str) -> None:
    assert read_log_message(line) == message


def test_an_error_is_shown_without_the_id_of_a_container_and_has_all_words_of_podman() -> None:
    texts = [f"Podman: the container {digit * 64} has ended (pid {digit}7)" for digit in "12"]
    errors = [PodmanError(text, status=500) for text in texts]
    assert {str(error) for error in errors} == {"Podman: the container … has ended (pid …)"}
    assert [error.words for error in errors] == texts


def test_an_image_that_the_daemon_serves_has_one_message_for_all_pulls() -> None:
    digest = f"sha256:{'5f' * 32}"
    shown = set()
    for port, path in (("41233", f"a1/{'0a' * 16}"), ("39001", f"a1/{'b7' * 16}")):
        host = f"127.0.0.1:{port}"
        message = f'{host}/{path}@{digest}: pinging {host}: Get "http://{host}/v2/{path}/blobs/{digest}": refused'
        shown.add(name_image(message, f"{host}/{path}@{digest}", f"registry.test/shop/web@{digest}"))
    assert shown == {
        f"registry.test/shop/web@{digest}: pinging registry.test: "
        f'Get "http://registry.test/v2/shop/web/blobs/{digest}": refused'
    }
