"""Certificates are read from files, and what cannot be served is a problem that names the file and the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.engines.host.dataplane.certificates.directory import CertificateDirectory
from reconciler.engines.host.dataplane.certificates.pem import CertificateError, read_authorities, read_certificate
from tests.support.certificates import authority, issue


def problem(path: Path) -> str:
    """The problem of the only file in ``path``."""
    directory = CertificateDirectory(path)
    directory.refresh()
    assert directory.certificates == ()
    (text,) = directory.problems.values()
    return text


def test_names_validity_and_chain_are_read_and_written_anew() -> None:
    issued = issue("Shop.example", "*.shop.example", end=30)
    noise = b"# a comment ; <<\n\n"
    certificate = read_certificate(
        noise + authority().chain_pem + issued.key_pem + noise + issued.chain_pem, "shop.pem"
    )
    assert certificate.names == ("*.shop.example", "shop.example")
    assert round((certificate.not_after - certificate.not_before) / 86_400) == 31
    assert certificate.pem.encode() == issued.chain_pem + authority().chain_pem + issued.key_pem
    assert "PRIVATE" not in repr(certificate)


def test_a_name_that_is_no_host_name_is_left_out() -> None:
    names = ("good.example", "bad name.example", "[alpn].example", "x.*.example", "a" * 64 + ".example")
    assert read_certificate(issue(*names).pem, "x").names == ("good.example",)
    with pytest.raises(CertificateError, match="no DNS name"):
        read_certificate(issue().pem, "x")


def test_authorities_are_certificates_and_nothing_else() -> None:
    assert read_authorities(b"text\n" + authority().pem) == authority().chain_pem.decode()
    with pytest.raises(CertificateError, match="no certificate"):
        read_authorities(b"text")


def test_the_three_forms_of_files(tmp_path: Path) -> None:
    whole, pair, live = issue("a.example"), issue("b.example"), issue("c.example")
    (tmp_path / "a.pem").write_bytes(whole.pem)
    (tmp_path / "b.crt").write_bytes(pair.chain_pem)
    (tmp_path / "b.key").write_bytes(pair.key_pem)
    archive = tmp_path / ".archive"
    archive.mkdir()
    (archive / "chain1.pem").write_bytes(live.chain_pem + authority().chain_pem)
    (archive / "key1.pem").write_bytes(live.key_pem)
    (tmp_path / "c.example").mkdir()
    (tmp_path / "c.example/fullchain.pem").symlink_to(archive / "chain1.pem")
    (tmp_path / "c.example/privkey.pem").symlink_to(archive / "key1.pem")
    (tmp_path / "README").write_text("no certificate\n")
    directory = CertificateDirectory(tmp_path)
    directory.refresh()
    assert [each.names[0] for each in directory.certificates] == ["a.example", "b.example", "c.example"]
    assert directory.problems == {}


def test_what_cannot_be_used_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.pem"
    cases = {
        b"": "no certificate",
        b"\x00\xff" * 1000: "no certificate",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "no certificate",
        issue("a.example").chain_pem: "no private key",
        issue("a.example").chain_pem + issue("a.example").key_pem: "belongs to another",
        issue("a.example").chain_pem + issue("a.example").locked_key_pem: "passphrase",
        b" " * (10 << 20): "larger than 1 MiB",
        issue("a.example").chain_pem + b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "damaged",
    }
    for content, reason in cases.items():
        path.write_bytes(content)
        assert reason in problem(tmp_path)


def test_neither_a_pipe_nor_a_device_nor_a_lost_link_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.pem"
    os.mkfifo(path)
    assert "not a regular file" in problem(tmp_path)
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "not a regular file" in problem(tmp_path)
    path.unlink()
    path.symlink_to("a.pem")
    assert "cannot be read" in problem(tmp_path)


def test_a_file_is_read_again_once_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.pem"
    path.write_bytes(issue("a.example").pem)
    directory = CertificateDirectory(tmp_path)
    directory.refresh()
    first = directory.certificates
    directory.refresh()
    assert directory.certificates[0] is first[0]
    (tmp_path / "new").write_bytes(issue("b.example").pem)
    (tmp_path / "new").rename(path)
    directory.refresh()
    assert directory.certificates[0].names == ("b.example",)
    path.unlink()
    directory.refresh()
    assert directory.certificates == ()


def test_a_lost_directory_takes_no_certificate_away(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    (folder / "a.pem").write_bytes(issue("a.example").pem)
    directory = CertificateDirectory(folder)
    directory.refresh()
    folder.rename(tmp_path / "lost")
    directory.refresh()
    assert len(directory.certificates) == 1
    assert "No such file" in directory.problems[str(folder)]
