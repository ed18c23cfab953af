"""What large runs have freed is returned to the system."""

from __future__ import annotations

from reconciler.daemon.upkeep import GROWTH, FreedMemory, read_resident_bytes


def test_freed_memory_between_blocks_in_use_returns_to_the_system() -> None:
    freed = FreedMemory()
    freed.give_back()
    assert not freed.is_worth_returning()
    blocks = [bytes(1000 + number % 100) for number in range(4 * GROWTH // 1000)]
    full = read_resident_bytes()
    assert freed.is_worth_returning()
    in_use = blocks[::100]
    del blocks
    assert read_resident_bytes() > full - GROWTH, "malloc keeps it"
    freed.give_back()
    assert read_resident_bytes() < full - 2 * GROWTH
    assert not freed.is_worth_returning()
    assert len(in_use) > 100
