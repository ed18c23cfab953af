"""Image references: what each names, and what is refused with the form to write."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engines.workload.image_reference import ImageError, ImageReference, parse_reference
from reconciler.printable import escape_text
from reconciler.reasons import Reason
from tests.support.cases import cases
from tests.support.pace import in_time


@pytest.mark.parametrize("case", cases("host/images.yaml"))
def test_a_reference_is_parsed_or_refused(case: dict[str, Any]) -> None:
    text, registry = case["image"] * case.get("repeat", 1), case.get("registry", "")
    if "error" in case:
        with pytest.raises(ImageError) as refused:
            parse_reference(text, "acme", registry)
        assert case["error"] in str(refused.value)
        assert (refused.value.reason, refused.value.retry) == (Reason.INVALID_IMAGE_NAME, False)
        assert len(str(refused.value)) < 500
        assert str(refused.value).isprintable()
        return
    reference = parse_reference(text, "acme", registry)
    assert reference == ImageReference(*case["is"])
    assert reference.host == case.get("host", reference.registry)
    assert parse_reference(str(reference), "acme", registry) == reference


@pytest.mark.parametrize("text", ["quay.io/" + "a-" * 500, "quay.io/" + "a__" * 330, "a." * 510, "a-" * 510 + ".b/c"])
def test_no_reference_takes_long(text: str) -> None:
    def refused() -> None:
        with pytest.raises(ImageError):
            parse_reference(text, "acme", "")

    in_time(refused, 0.1)


def test_the_image_at_a_digest_has_no_tag() -> None:
    digest = f"sha256:{'a' * 64}"
    assert str(ImageReference("quay.io", "app", "1").at(digest)) == f"quay.io/app@{digest}"


PIECES = ["a", "A", "0", ".", "-", "_", "/", ":", "@", "sha256:", "r.example", "//image/", " ", "\n", "$", "'"]
HARMLESS = r"[a-z0-9][a-z0-9.:-]*(/[a-z0-9][a-z0-9._-]*)+(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?"


def parsed(text: str) -> ImageReference | str:
    """What ``text`` names, or why it is refused."""
    try:
        return parse_reference(text, "acme", "r.example/acme")
    except ImageError as error:
        return str(error)


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=40))
def test_whatever_is_accepted_can_be_part_of_a_path_and_of_a_command(text: str) -> None:
    reference = parsed(text)
    if isinstance(reference, str):
        assert escape_text(reference) == reference
        return
    assert re.fullmatch(HARMLESS, str(reference))
    assert ".." not in reference.repository
    assert parse_reference(str(reference), "acme", "") == reference
