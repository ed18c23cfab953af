"""`reconciler doctor`: it finds and names every kind of trouble and gives advice; it reports health too."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.access.audit_records import AuditRecord
from reconciler.access.hash_chain import START, compute_chain_hash
from reconciler.access.store import FILE as ACCESS_FILE
from reconciler.access.store import AccessStore, AuditEntry
from reconciler.clock import SystemClock
from reconciler.daemon.lock import StateLock
from reconciler.engines.domain_status import DomainCondition, DomainReport, update_domain_state
from reconciler.engines.workload.status import DeploymentCondition, with_condition
from reconciler.model.key import Key
from reconciler.model.record import Health
from reconciler.reasons import ConditionType, Reason
from reconciler.records.store import FILE, Records
from reconciler.sops.encrypt import EncryptionRules, encrypt_secrets
from tests.support.certificates import issue
from tests.support.command_sandbox import SECRET, SETTINGS, CommandSandbox, workload
from tests.support.git import HttpsServer
from tests.support.keys import Keys
from tests.support.programs import only_root, open_way
from tests.support.rule_cases import private
from tests.support.sops import MOMENT, fresh

BRANCH = "reconciler/status"
TOKEN = "s3cret-t0ken"
STRANGER = 12_345
POLICY = ("---" + SECRET.partition("---")[2]).encode()
"""The manifests that permit a workload to read the secret of the shop."""


@pytest.fixture
def sandbox(tmp_path: Path) -> CommandSandbox:
    """A sandbox whose shop is applied."""
    sandbox = CommandSandbox(tmp_path)
    sandbox.applied()
    return sandbox


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user may enter, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="reconciler-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def examined(sandbox: CommandSandbox, **environ: str) -> list[dict[str, str]]:
    """All checks; the exit code fits them."""
    result = sandbox.run("doctor", "--format", "json", **environ)
    assert result.err == ""
    assert result.code == (1 if result.json["problems"] else 0)
    checks: list[dict[str, str]] = result.json["checks"]
    for verdict in ("problem", "warning"):
        assert result.json[f"{verdict}s"] == sum(each["verdict"] == verdict for each in checks)
    assert all(each["advice"] for each in checks if each["verdict"] != "ok")
    return checks


def reported(sandbox: CommandSandbox, about: str, verdict: str, **environ: str) -> str:
    """The messages about ``about`` with this verdict, in one text."""
    found = [each for each in examined(sandbox, **environ) if (each["about"], each["verdict"]) == (about, verdict)]
    return "\n".join(f"{each['message']} -> {each.get('advice', '')}" for each in found)


def configure(sandbox: CommandSandbox, **source: Any) -> None:
    """Give the source of the sandbox more settings."""
    plain = {"name": "main", "url": "./manifests", "branch": "main"} | source
    locations = {"here": {"engine": "recorded"}, "there": {"engine": "recorded"}}
    sandbox.settings.write_text(
        json.dumps({"org": "acme", "state": "state", "sources": [plain], "locations": locations})
    )


def test_a_healthy_host_has_no_problem(sandbox: CommandSandbox) -> None:
    with StateLock(sandbox.state):
        checks = examined(sandbox)
    assert {each["about"] for each in checks if each["verdict"] == "problem"} == set()
    assert {each["about"] for each in checks if each["verdict"] == "warning"} <= {"clock", "disk"}
    ok = {each["about"]: each["message"] for each in checks if each["verdict"] == "ok"}
    assert ok.keys() >= {"settings", "state directory", "git", "daemon", "source main", "locations"}
    assert ok["locations"] == "here, there in use"
    assert f"pid {os.getpid()} on" in ok["daemon"]
    assert "ago (main: applied)" in ok["daemon"]


def test_text_shows_verdict_message_and_advice_and_ends_with_a_count(sandbox: CommandSandbox) -> None:
    lines = sandbox.run("doctor").out.splitlines()
    assert lines[0].startswith("ok       settings: ")
    at = next(number for number, line in enumerate(lines) if line.startswith("warning  daemon: no daemon runs; "))
    assert lines[at + 1] == "         start it: its service, or `reconciler run`"
    assert lines[-1].endswith("0 problems")


def hosted(sandbox: CommandSandbox, dataplane: str = "builtin", **host: Any) -> None:
    """Let the location of the sandbox be this machine."""
    open_way(sandbox.path)
    configure(sandbox)
    bound = {
        "locations": {
            "here": {"engine": "host", "runtime": "process", "dataplane": dataplane},
            "there": {"engine": "recorded"},
        },
        "host": host,
    }
    sandbox.settings.write_text(json.dumps(json.loads(sandbox.settings.read_text()) | bound))


def test_doctor_reports_what_the_host_engine_lacks_where_it_is_used(sandbox: CommandSandbox) -> None:
    assert not [each for each in examined(sandbox) if each["about"] == "host engine"]
    hosted(sandbox)
    assert reported(sandbox, "host engine", "problem") == ""
    hosted(sandbox, firstPort=40_000, lastPort=41_000)
    assert "are taken for outgoing connections too -> set host.firstPort" in reported(sandbox, "host engine", "warning")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        hosted(sandbox, firstPort=port, lastPort=port, firstServicePort=port, lastServicePort=port)
        warnings = reported(sandbox, "host engine", "warning")
        hosted(sandbox, firstPort=port, lastPort=port, metrics={"address": f"127.0.0.1:{port}"})
        of_metrics = reported(sandbox, "host engine", "warning")
    assert f"another program listens at port {port} of host.metrics.address -> end it" in of_metrics
    assert f"the port of host.metrics.address, {port}, is among those for replicas" in of_metrics
    assert "1 of the 1 ports for replicas are in use -> move host.firstPort" in warnings
    assert "1 of the 1 ports for endpoints are in use -> move host.firstServicePort" in warnings
    assert "are taken for outgoing connections too -> set host.firstServicePort" in warnings
    assert f"the ports {port} to {port} for endpoints are among those for replicas -> set host.firstServ" in warnings


def test_doctor_names_each_location_whose_volumes_may_outgrow_their_disk_once(sandbox: CommandSandbox) -> None:
    space = {"initialCapacity": 10, "performanceClass": "general-purpose-ssd"}
    names = ("extra", "more")
    sandbox.commit(
        {
            f"{name}.yaml": json.dumps({"kind": "volumeset", "name": name, "gvc": "shop", "spec": space}).encode()
            for name in names
        }
    )
    sandbox.applied()
    assert reported(sandbox, "volumes", "warning") == ""
    kind, reason = ConditionType.DISK_OVERCOMMITTED, Reason.DISK_OVERCOMMITTED
    state = with_condition(b"{}", DeploymentCondition(kind, "True", reason, "the volumes may grow to 20 GB"))
    with closing(Records.open(sandbox.state / FILE)) as records:
        for name in names:
            records.applied.update_seen(Key.parse(f"volumeset/shop/{name}"), "here", Health.HEALTHY, state)
    assert reported(sandbox, "volumes", "warning") == (
        "at here, the volumes may grow to 20 GB -> use a larger disk, or fewer or smaller volumes; alert on the free "
        "space of it"
    )


def test_doctor_names_what_the_export_of_snapshots_lacks(
    sandbox: CommandSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosted(sandbox)
    password = tmp_path / "restic-password"
    export = {"restic": {"repository": "sftp:nas:/volumes", "passwordFile": str(password)}}
    sandbox.settings.write_text(
        json.dumps(json.loads(sandbox.settings.read_text()) | {"snapshots": {"export": export}})
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    found = reported(sandbox, "host engine", "problem")
    assert "restic is not installed, so no snapshot is exported -> apt-get install restic" in found
    assert str(password) in found
    (tmp_path / "restic").touch(0o755)
    password.write_text("secret")
    assert "restic" not in reported(sandbox, "host engine", "problem")


def test_doctor_names_certificates_that_expire_and_orders_that_failed(sandbox: CommandSandbox, tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    acme = {"directory": "https://acme.example/dir", "email": "ops@shop.example"}
    ingress = {"certificates": str(folder), "acme": acme}
    hosted(sandbox)
    bound = {
        "locations": {"here": {"engine": "host", "runtime": "process", "dataplane": "haproxy", "ingress": ingress}}
    }
    sandbox.settings.write_text(json.dumps(json.loads(sandbox.settings.read_text()) | bound))
    (folder / "old.pem").write_bytes(issue("new.example", end=3.0).pem)
    (folder / "new.pem").write_bytes(issue("new.example", end=80.0).pem)
    assert reported(sandbox, "certificates", "warning") == ""
    (folder / "soon.pem").write_bytes(issue("soon.example", start=-77.0, end=13.0).pem)
    (folder / "gone.pem").write_bytes(issue("gone.example", start=-9.0, end=-1.0).pem)
    (folder / "short.pem").write_bytes(issue("short.example", end=6.0).pem)
    (folder / "broken.pem").write_text("nothing")
    orders = sandbox.state / "host" / "here" / "dataplane" / "acme"
    (orders / "certificates").mkdir(parents=True)
    (orders / "certificates" / "a.example.pem").write_bytes(issue("a.example", end=40.0).pem)
    failures = {
        "a.example": {"count": 2, "at": time.time(), "message": "the authority cannot be reached"},
        "unwanted.example": {"count": 1, "at": time.time() - 90_000.0, "message": "refused"},
    }
    (orders / "state.json").write_text(json.dumps({"failures": failures}))
    found = reported(sandbox, "certificates", "warning").splitlines()
    assert [re.split(" (?:at|until) 20", each)[0] for each in found] == [
        f"{folder}/broken.pem is not served: it has no certificate in PEM form, or a damaged one -> replace it, or let "
        "the user of the daemon read it",
        f"{folder}/gone.pem: the certificate for gone.example expired",
        f"{folder}/soon.pem: the certificate for soon.example expires",
        "at here, the certificate for a.example could not be obtained: the authority cannot be reached, and the former "
        "one is served",
    ]


TLS_SECRET = """kind: secret
name: {name}
type: tls
data: # reconciler: ignore secret-plain-text made up
  cert: {cert}
  key: {key}
"""
TLS_DOMAIN = """---
kind: domain
name: {name}.example
spec:
  workloadLink: //gvc/shop/workload/api
  ports:
    - number: 443
      tls: {{serverCertificate: {{secretLink: //secret/{name}}}}}
"""


def test_doctor_reads_the_certificates_in_secrets_of_domains(sandbox: CommandSandbox) -> None:
    identity, recipient = fresh()
    private(sandbox.path / "host" / "age.txt", identity)
    secrets = "secrets: {identity: host/age.txt, directory: host}\n"
    sandbox.settings.write_text(SETTINGS + secrets)
    files: dict[str, bytes] = {}
    for name, end in (("soon", 13.0), ("late", 80.0), ("sealed", 5.0), ("broken", 80.0)):
        certificate = issue(f"{name}.example", start=-77.0, end=end)
        cert = (
            certificate.chain_pem.decode().replace("MII", "AII") if name == "broken" else certificate.chain_pem.decode()
        )
        secret = TLS_SECRET.format(
            name=name, cert=json.dumps(cert), key=json.dumps(certificate.key_pem.decode())
        ).encode()
        sealed = encrypt_secrets(secret, [recipient], EncryptionRules(), MOMENT) if name == "sealed" else secret
        files[f"{name}.yaml"] = sealed + TLS_DOMAIN.format(name=name).encode()
    sandbox.commit(files)
    sandbox.applied()
    assert reported(sandbox, "certificates", "warning") == "", "nothing is served here"
    ingress = "{engine: host, runtime: process, dataplane: haproxy, ingress: {}}"
    sandbox.settings.write_text(SETTINGS.replace("  here: {engine: recorded}", f"  here: {ingress}") + secrets)
    warnings = reported(sandbox, "certificates", "warning")
    assert [re.split(" at 20", each)[0] for each in warnings.splitlines()] == [
        "secret/broken is not served for broken.example: it has no certificate in PEM form, or a damaged one -> "
        "correct the secret; the daemon reads it when it is applied",
        "secret/sealed: the certificate for sealed.example expires",
        "secret/soon: the certificate for soon.example expires",
    ]
    with closing(Records.open(sandbox.state / FILE)) as records:
        missing = DomainCondition(ConditionType.CERTIFICATE_MISSING, Reason.CERTIFICATE_MISSING, "none is issued yet")
        state = update_domain_state(b"{}", [DomainReport("here", conditions=(missing,))], ())
        records.applied.update_seen(Key.parse("domain/late.example"), "", Health.UNHEALTHY, state)
    (sandbox.path / "host" / "age.txt").write_text(fresh()[0])
    certificate = reported(sandbox, "certificates", "warning")
    assert "domain/late.example has the condition CertificateMissing at here: none is issued yet" in certificate
    assert (
        "secret/sealed is not served for sealed.example: secret/sealed can no longer be opened (sealed.yaml:1)"
        in certificate
    )
    assert "PRIVATE KEY" not in sandbox.run("doctor").out


def test_doctor_names_the_haproxy_of_a_location_or_what_it_lacks(
    sandbox: CommandSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "haproxy"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    hosted(sandbox, dataplane="haproxy")
    for version, verdict, expected in (
        ("HAProxy version 3.0.1 2024\nBuilt with Lua\n", "ok", "; HAProxy 3.0.1 serves the endpoints of here"),
        (
            "HAProxy version 2.6.1 2024\n",
            "warning",
            "HAProxy 2.6.1 lacks Lua: at here, requests do not wait",
        ),
        ("HAProxy version 2.4.22 2024\n", "problem", "HAProxy 2.4.22 is installed, and the endpoints of here need 2.6"),
        (
            "",
            "problem",
            "-vv` printed no version: it ended with code 0; the endpoints of here stay as they are until it ",
        ),
    ):
        program.write_text(f"#!/bin/sh\nprintf '{version}'\n")
        program.chmod(0o755)
        assert expected in reported(sandbox, "host engine", verdict)
    hosted(sandbox, dataplane="auto")
    passed_over = f"HAProxy of an unknown version is installed and not used: `{program} -vv` printed no version"
    assert passed_over in reported(sandbox, "host engine", "warning")
    config = sandbox.state / "host" / "here" / "dataplane" / "haproxy" / "haproxy.cfg"
    config.parent.mkdir(parents=True)
    config.touch()
    assert "the endpoints of here stay as they are" in reported(sandbox, "host engine", "problem")
    config.unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr("reconciler.engines.host.dataplane.haproxy.program.SEARCH", "")
    assert reported(sandbox, "host engine", "problem") == ""
    hosted(sandbox, dataplane="haproxy")
    missing = "HAProxy is not installed, and the endpoints of here need 2.6 or newer -> apt-get install haproxy"
    assert missing in reported(sandbox, "host engine", "problem")


def test_doctor_checks_the_limits_of_the_daemon(sandbox: CommandSandbox) -> None:
    hosted(sandbox)
    with StateLock(sandbox.state):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (800, before[1]))
        try:
            assert "the daemon may have only 800 open files -> raise it" in reported(sandbox, "host engine", "warning")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_run_that_a_crash_cut_off_is_called_unfinished(sandbox: CommandSandbox) -> None:
    records = Records.open(sandbox.state / FILE)
    records.runs.start("main", "main@sha1:" + "1" * 40, "start")
    records.close()
    assert " ago: unfinished" in reported(sandbox, "source main", "ok")


def test_faulty_settings_are_a_problem_with_a_place(sandbox: CommandSandbox) -> None:
    sandbox.settings.write_text(SETTINGS.replace("state: state", "staet: state"))
    assert f"{sandbox.settings}:2:1: " in reported(sandbox, "settings", "problem")


def test_settings_that_every_user_can_write_are_a_problem(sandbox: CommandSandbox) -> None:
    sandbox.settings.chmod(0o666)
    assert "every user of this host may change" in reported(sandbox, "settings", "problem")


def test_a_state_directory_that_is_open_to_others_is_a_problem(sandbox: CommandSandbox) -> None:
    sandbox.state.chmod(0o755)
    assert f"(mode 755) -> chmod 700 {sandbox.state}" in reported(sandbox, "state directory", "problem")
    sandbox.state.chmod(0o700)
    (sandbox.state / FILE).chmod(0o644)
    assert "contains secrets, is open to others" in reported(sandbox, "state directory", "problem")


@only_root("only root can give files away")
def test_a_file_or_socket_that_every_user_can_write_to_is_a_problem(open_place: Path) -> None:
    sandbox = CommandSandbox(open_place)
    directory = sandbox.state / "host" / "here" / "dataplane"
    directory.mkdir(parents=True, exist_ok=True)
    for folder in (
        sandbox.state,
        *(parent for parent in directory.parents if sandbox.state in parent.parents),
        directory,
    ):
        folder.chmod(0o711)
    link, closed = directory / "log.sock", directory / "closed"
    closed.mkdir(mode=0o700)
    (closed / "hidden").touch()
    (closed / "hidden").chmod(0o666)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(link))
        link.chmod(0o600)
        assert reported(sandbox, "state directory", "problem") == ""
        link.chmod(0o666)
    expected = f"every user of this host may write to {link} (mode 666) -> chmod o-w {link}"
    assert reported(sandbox, "state directory", "problem") == expected


def test_missing_permissions_of_the_daemon_user_are_a_problem(open_place: Path) -> None:
    sandbox = CommandSandbox(open_place)
    sandbox.applied()
    sandbox.run = partial(sandbox.run, real=True)  # type: ignore[method-assign]
    os.chown(sandbox.state, STRANGER, STRANGER)
    assert f"belongs to root, not to uid {STRANGER}" in reported(sandbox, "state directory", "problem")
    os.chown(sandbox.state / FILE, STRANGER, STRANGER)
    assert reported(sandbox, "state directory", "problem") == ""
    assert f"reconciler/status cannot be written: uid {STRANGER} may not write to" in reported(
        sandbox, "source main", "problem"
    )
    for folder, _, files in os.walk(sandbox.repo.path):
        for name in (".", *files):
            os.chown(Path(folder, name), STRANGER, STRANGER)
    token = sandbox.path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    configure(sandbox, credentials={"tokenFile": str(token)})
    assert f"uid {STRANGER} may not read {token}" in reported(sandbox, "source main", "problem")
    os.chown(token, STRANGER, STRANGER)
    assert reported(sandbox, "source main", "problem") == ""


def test_files_with_secrets_are_there_and_closed(sandbox: CommandSandbox) -> None:
    token = sandbox.path / "token"
    configure(sandbox, credentials={"tokenFile": "token", "keyFile": "key", "knownHosts": "hosts"})
    output = reported(sandbox, "source main", "problem")
    assert all(f"{sandbox.path / name}: No such file" in output for name in ("token", "key", "hosts"))
    for name in ("token", "key", "hosts"):
        (sandbox.path / name).write_text(TOKEN)
        (sandbox.path / name).chmod(0o644)
    output = reported(sandbox, "source main", "problem")
    assert f"every user of this host may read {token} (mode 644) -> chmod o= {token}" in output
    assert "hosts" not in output
    for name in ("token", "key"):
        (sandbox.path / name).chmod(0o640)
    output = reported(sandbox, "source main", "problem")
    assert output == f"ssh does not use {sandbox.path / 'key'}: its mode is 640 -> chmod 600 {sandbox.path / 'key'}"
    (sandbox.path / "key").chmod(0o600)
    token.write_text("")
    assert f"{token} is empty" in reported(sandbox, "source main", "problem")
    assert TOKEN not in sandbox.run("doctor").out


def test_doctor_reports_an_identity_that_opens_no_secret(sandbox: CommandSandbox) -> None:
    identity, recipient = fresh()
    file = private(sandbox.path / "host" / "age.txt", identity)
    sandbox.settings.write_text(f"{SETTINGS}secrets: {{identity: host/age.txt, directory: host}}\n")
    assert f"{file} decrypts what is encrypted for {recipient}" in reported(sandbox, "secrets", "ok")
    secret = SECRET.format(password="hidden").partition("---")[0]
    sandbox.commit({"secrets.yaml": encrypt_secrets(secret.encode(), [recipient], EncryptionRules(), MOMENT) + POLICY})
    sandbox.applied()
    assert "1 that is encrypted or on this host can be opened" in reported(sandbox, "secrets", "ok")
    file.chmod(0o644)
    assert f"others (mode 644), so it is not used -> chgrp root {file}" in reported(sandbox, "secrets", "problem")
    file.chmod(0o600)
    file.write_text("AGE-SECRET-KEY-1NONE")
    assert "line 1 is not an identity" in reported(sandbox, "secrets", "problem")
    assert "1NONE" not in sandbox.run("doctor").out
    file.write_text(fresh()[0])
    assert "secret/db can no longer be opened (secrets.yaml:1)" in reported(sandbox, "secrets", "problem")
    file.unlink()
    assert "No such file" in reported(sandbox, "secrets", "problem")


def test_a_branch_or_repository_that_is_not_there_is_a_problem(sandbox: CommandSandbox) -> None:
    configure(sandbox, branch="mian")
    assert "did you mean 'main'? -> restore it" in reported(sandbox, "source main", "problem")
    configure(sandbox, url="./nowhere")
    assert "no Git repository can be read" in reported(sandbox, "source main", "problem")
    assert sandbox.run("apply").code == 1
    assert sandbox.run("doctor").out.count("no Git repository can be read") == 1, "the records repeat it"
    configure(sandbox, path="nowhere")
    assert "has no directory 'nowhere'" in reported(sandbox, "source main", "problem")


def test_a_remote_is_asked_for_its_branch_and_for_leave_to_push(
    sandbox: CommandSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    token = sandbox.path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    with HttpsServer(sandbox.path, tmp_path, TOKEN) as server:
        trusts = {"GIT_SSL_CAINFO": str(server.certificate)}
        remote: dict[str, Any] = {
            "url": server.url("manifests"),
            "credentials": {"tokenFile": "token"},
            "timeout": "60s",
        }
        sandbox.repo.git("config", "http.receivepack", "true")
        configure(sandbox, **remote)
        assert "the remote answers and has refs/heads/main" in reported(sandbox, "source main", "ok", **trusts)
        assert not (sandbox.state / "mirrors").exists(), "a check creates nothing"
        append(sandbox, "/one", "/two")
        sandbox.repo.commit({"shop/new.yaml": workload("new")})
        assert sandbox.run("apply", **trusts).code == 0
        assert f"the hashes in 1 commit of {BRANCH} of main fit" in reported(sandbox, "audit log", "ok", **trusts)
        before = sandbox.repo.git("for-each-ref")
        assert "reconciler/status can be pushed" in reported(sandbox, "source main", "ok", **trusts)
        assert sandbox.repo.git("for-each-ref") == before
        sandbox.repo.git("config", "http.receivepack", "false")
        assert "reconciler/status cannot be pushed" in reported(sandbox, "source main", "problem", **trusts)
        configure(sandbox, **remote, readOnly=True)
        assert reported(sandbox, "source main", "problem", **trusts) == ""
        configure(sandbox, **remote | {"branch": "nowhere"})
        assert "the remote answers and has no refs/heads/nowhere" in reported(
            sandbox, "source main", "problem", **trusts
        )
        token.write_text("wr0ng-t0ken")
        output = reported(sandbox, "source main", "problem", **trusts)
        assert "Authentication failed" in output
        assert "wr0ng" not in output
    configure(sandbox, **remote)
    assert "check the network" in reported(sandbox, "source main", "problem", **trusts)
    assert sandbox.run("apply", **trusts).code == 1
    checks = [each for each in examined(sandbox, **trusts) if each["about"] == "source main"]
    assert sum("unable to access" in each["message"] for each in checks) == 1, "the records say it again"


def test_a_token_that_crosses_the_network_as_plain_text_is_a_problem(sandbox: CommandSandbox) -> None:
    (sandbox.path / "token").write_text(TOKEN)
    configure(sandbox, url="http://127.0.0.1:9/manifests", credentials={"tokenFile": "token"}, timeout="1s")
    assert "cross the network as plain text; use https://, or set credentials" in reported(
        sandbox, "source main", "problem"
    )
    leave = {"tokenFile": "token", "allowInsecure": True}
    configure(sandbox, url="http://127.0.0.1:9/manifests", credentials=leave, timeout="1s")
    assert "as plain text -> use https://" in reported(sandbox, "source main", "warning")


def test_signatures_are_checked_and_who_may_change_whom_they_trust(sandbox: CommandSandbox, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.ssh("ada")
    configure(sandbox, verify={"allowedSigners": str(keys.signers)})
    assert "it is not signed; nothing of it is read -> sign it" in reported(sandbox, "source main", "problem")
    keys.commit(sandbox.repo, "shop/web.yaml", workload("web"), "ada")
    assert "signed by a trusted key" in reported(sandbox, "source main", "ok")
    keys.signers.chmod(0o646)
    assert f"every user of this host may change {keys.signers}" in reported(sandbox, "source main", "problem")


def test_a_repository_that_is_never_packed_is_a_warning(sandbox: CommandSandbox) -> None:
    assert reported(sandbox, "source main", "warning") == ""
    seventeenth = sandbox.repo.path / "objects" / "17"
    seventeenth.mkdir(exist_ok=True)
    for number in range(27):
        (seventeenth / f"{number:038x}").touch()
    found = reported(sandbox, "source main", "warning")
    assert "objects in files of their own" in found
    assert "run `git gc` there" in found


def test_clocks_that_do_not_agree_are_a_warning(sandbox: CommandSandbox, tmp_path: Path) -> None:
    soon = int(time.time()) + 10_800
    keys = Keys(tmp_path / "keys")
    keys.commit(sandbox.repo, "shop/web.yaml", workload("web"), time=soon)
    assert "was committed 3 h from now" in reported(sandbox, "source main", "warning")
    records = Records.open(sandbox.state / FILE, clock_now=lambda: float(soon))
    records.runs.start("main", "main@sha1:1", "poll")
    records.close()
    assert "the clock was set back" in reported(sandbox, "clock", "warning")


def test_doctor_reports_unbound_and_unused_locations(sandbox: CommandSandbox) -> None:
    sandbox.settings.write_text(SETTINGS.replace("  there:", "  nowhere:"))
    assert "shop uses there, and the settings bind no engine to it" in reported(sandbox, "locations", "warning")
    assert "here in use; no applied GVC uses nowhere" in reported(sandbox, "locations", "ok")
    sandbox.settings.write_text(SETTINGS.partition("locations:")[0])
    assert "shop uses here" in reported(sandbox, "locations", "warning")


def test_doctor_reports_a_refused_revision_and_a_suspension(sandbox: CommandSandbox) -> None:
    live = sandbox.repo.git("rev-parse", "main")
    bad = sandbox.commit({"shop/web.yaml": workload("web").replace("type: standard", "type: odd")})
    assert sandbox.run("apply").code == 1
    line = reported(sandbox, "source main", "problem")
    assert re.search(rf"{bad[:12]} \([^)]+\) is refused since \S+Z: .*shop/web\.yaml:\d+:\d+: ", line), line
    assert f"; {live[:12]} stays live -> for all of it: reconciler validate; " in line
    assert line.endswith(f"git revert {bad[:12]}")
    sandbox.run("suspend", "main", "--reason", "holidays")
    sandbox.run("apply")
    assert "holidays -> to end that: reconciler resume main" in reported(sandbox, "source main", "warning")


def test_doctor_reports_a_suspended_resource(sandbox: CommandSandbox) -> None:
    sandbox.run("suspend", "workload/shop/web", "--reason", "a look inside")
    advice = "a look inside -> to end that: reconciler resume workload/shop/web"
    assert advice in reported(sandbox, "workload/shop/web", "warning")


def test_doctor_reports_a_daemon_that_does_not_answer(sandbox: CommandSandbox) -> None:
    records = Records.open(sandbox.state / FILE, clock_now=lambda: time.time() - 600)
    records.requests.add("apply", {}, "ann")
    records.close()
    assert "has not answered" not in reported(sandbox, "daemon", "warning")
    with StateLock(sandbox.state):
        assert "it has not answered `apply` of ann for 10 min" in reported(sandbox, "daemon", "warning")


def test_records_that_cannot_be_read_are_a_problem(sandbox: CommandSandbox) -> None:
    for ending in ("-wal", "-shm"):
        (sandbox.state / f"{FILE}{ending}").unlink(missing_ok=True)
    (sandbox.state / FILE).write_bytes(b"not a database" * 1000)
    assert "is not a database of the reconciler" in reported(sandbox, "records", "problem")


def test_an_audit_log_that_was_changed_is_a_problem(sandbox: CommandSandbox) -> None:
    entry = AuditEntry(0, "user/ann", "key 1", "", "DELETE", "/org/acme/gvc/shop", "id", 200)
    record = AuditRecord(0, "user/ann", "key 1", "", "id", "deployed", "", "", {})
    with closing(AccessStore.open(sandbox.state, SystemClock())) as store:
        store.append_audit([entry] * 8)
        for _ in range(2):
            store.audit_records.append("trail", record)
        last = store.audit(7)[0].hash
    whole = f"every entry follows from the one before; the last is 8, with the hash {last[:12]}"
    assert reported(sandbox, "audit log", "ok") == f"{whole} -> "
    with closing(sqlite3.connect(sandbox.state / ACCESS_FILE)) as file:
        file.execute("UPDATE audit SET entry = replace(entry, 'ann', 'bob') WHERE number != 3")
        file.execute("DELETE FROM audit_records WHERE number = 1")
        file.commit()
    assert "an entry was changed or removed at 1, 2, 4, 5, 6 and more ->" in reported(sandbox, "audit log", "problem")
    assert "changed or removed at 2 ->" in reported(sandbox, "audit context trail", "problem")
    (sandbox.state / ACCESS_FILE).write_bytes(b"not a database" * 1000)
    assert "is not a database of the reconciler" in reported(sandbox, "audit log", "problem")


def append(sandbox: CommandSandbox, *targets: str) -> None:
    """Append entries to the audit log."""
    with closing(AccessStore.open(sandbox.state, SystemClock())) as store:
        store.append_audit([AuditEntry(0, "user/ann", "key 1", "", "DELETE", each, "id", 200) for each in targets])


def recompute(sandbox: CommandSandbox, old: str, new: str) -> None:
    """Change entries of the audit log, and compute the hashes of all again, as who writes the file can."""
    with closing(sqlite3.connect(sandbox.state / ACCESS_FILE)) as file:
        last = START
        for number, entry in file.execute("SELECT number, entry FROM audit ORDER BY number").fetchall():
            changed = entry.replace(old, new)
            last = compute_chain_hash(last, changed.encode())
            file.execute("UPDATE audit SET entry = ?, hash = ? WHERE number = ?", (changed, last, number))
        file.commit()


def test_a_recomputed_audit_log_does_not_fit_the_commits_of_the_status_branch(sandbox: CommandSandbox) -> None:
    for number in range(3):
        append(sandbox, f"/first/{number}", f"/second/{number}")
        sandbox.repo.commit({f"shop/new-{number}.yaml": workload(f"new-{number}")})
        assert sandbox.run("apply").code in (0, 3)
    commits = sandbox.repo.git("log", "--format=%h %(trailers:key=Audit-Log,valueonly,separator=%x2C)", BRANCH)
    anchors = [line.split() for line in commits.splitlines() if len(line.split()) == 3]
    assert [number for _, number, _ in anchors] == ["6", "4", "2"]
    fits = f"the hashes in 3 commits of {BRANCH} of main fit, up to entry 6"
    assert fits in reported(sandbox, "audit log", "ok")
    append(sandbox, "/later")
    assert fits in reported(sandbox, "audit log", "ok"), "what is newer than the last commit of the status fits"
    whole = (sandbox.state / ACCESS_FILE).read_bytes()
    recompute(sandbox, "/second/1", "/nothing")
    assert "every entry follows from the one before" in reported(sandbox, "audit log", "ok")
    found = reported(sandbox, "audit log", "problem")
    assert f"entry 4 has another hash: commit {anchors[1][0]}" in found
    assert "it is the first that does not fit, after entry 2" in found
    (sandbox.state / ACCESS_FILE).write_bytes(whole)
    with closing(sqlite3.connect(sandbox.state / ACCESS_FILE)) as file:
        file.execute("DELETE FROM audit WHERE number > 5")
        file.commit()
    assert f"entry 6 is missing: commit {anchors[0][0]}" in reported(sandbox, "audit log", "problem")


def test_before_the_first_start_there_is_nothing_to_complain_of(tmp_path: Path) -> None:
    sandbox = CommandSandbox(tmp_path)
    checks = examined(sandbox)
    assert [each for each in checks if each["verdict"] == "problem"] == []
    assert "nothing is recorded yet" in reported(sandbox, "daemon", "warning")
    assert not sandbox.state.exists()


def test_programs_that_are_missing_are_a_problem(sandbox: CommandSandbox) -> None:
    bare = sandbox.path / "bin"
    bare.mkdir()
    assert "git cannot be run -> install git" in reported(sandbox, "git", "problem", PATH=str(bare))
    (bare / "git").write_text(f"#!{sys.executable}\nprint('git version 2.20.1')\n")
    (bare / "git").chmod(0o755)
    assert "git version 2.20.1 -> install git 2.29 or newer" in reported(sandbox, "git", "problem", PATH=str(bare))
    configure(sandbox, verify={"allowedSigners": "signers", "gpgKeyring": "ring"})
    assert "install git 2.35 or newer to verify signatures" in reported(sandbox, "git", "problem", PATH=str(bare))
    assert "which is not installed -> install gpg" in reported(sandbox, "gpg", "problem", PATH=str(bare))
    assert "install ssh-keygen" in reported(sandbox, "ssh-keygen", "problem", PATH=str(bare))
