"""CPU and memory as texts and as whole numbers."""

from __future__ import annotations

import pytest

from reconciler.model.quantity import GIB, MIB, memory_bytes, parse_millicores


@pytest.mark.parametrize(("text", "amount"), [("1m", 1), ("500m", 500), ("1", 1000), ("64", 64_000), ("0", 0)])
def test_cpu_is_counted_in_thousandths_of_a_core(text: str, amount: int) -> None:
    assert parse_millicores(text) == amount


@pytest.mark.parametrize(("text", "amount"), [("128Mi", 128 * MIB), ("2Gi", 2 * GIB), ("1024Mi", GIB), ("0Mi", 0)])
def test_memory_is_counted_in_bytes(text: str, amount: int) -> None:
    assert memory_bytes(text) == amount


NEITHER = [
    "",
    "m",
    "Mi",
    "-1",
    "-1m",
    "-1Mi",
    "+1m",
    "1_0m",
    " 1m",
    "1 m",
    "1.5",
    "0.5Gi",
    "1e3",
    "٣m",
    "²Mi",
    "1M",
    "1G",
    "1mi",
    "1MiMi",
    "9" * 16,
    "9" * 5000 + "Mi",
    "\ud800",
]


@pytest.mark.parametrize("text", NEITHER)
def test_whatever_is_no_quantity_is_refused_in_words(text: str) -> None:
    for read in (parse_millicores, memory_bytes):
        with pytest.raises(ValueError, match="write"):
            read(text)
