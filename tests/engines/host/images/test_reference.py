"""Image references: what each names, and what is refused with the form to write."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reconciler.engines.host.images.protocol import ImageError, ImageReference
from reconciler.engines.host.images.reference import parse_reference
from reconciler.reasons import Reason
from tests.support.cases import cases


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
    found = parse_reference(text, "acme", registry)
    assert found == ImageReference(*case["is"])
    assert found.host == case.get("host", found.registry)
    assert parse_reference(str(found), "acme", registry) == found


@pytest.mark.parametrize("text", ["quay.io/" + "a-" * 500, "quay.io/" + "a__" * 330, "a." * 510, "a-" * 510 + ".b/c"])
def test_no_reference_takes_long(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ImageError):
        parse_reference(text, "acme", "")
    assert time.process_time() - began < 0.1


def test_the_image_at_a_digest_has_no_tag() -> None:
    digest = f"sha256:{'a' * 64}"
    assert str(ImageReference("quay.io", "app", "1").at(digest)) == f"quay.io/app@{digest}"
