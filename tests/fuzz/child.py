"""``python -m tests.fuzz.child TARGET FILE ...``: one target under atheris; the rest is for libFuzzer.

FILE holds the input that is being checked, in case this process dies.
"""

from __future__ import annotations

import gc
import mmap
import sys

import atheris


def main(name: str, current_file: str, options: list[str]) -> None:
    """Fuzz the target ``name``; does not return."""
    from tests.fuzz.oracles import BYTES, HEAD
    from tests.fuzz.planted import PLANTED
    from tests.fuzz.targets import TARGETS, changed

    target = {**TARGETS, **PLANTED}[name]
    with open(current_file, "w+b") as file:
        file.truncate(HEAD + BYTES)
        current = mmap.mmap(file.fileno(), 0)
    gc.freeze()

    def check(raw: bytes) -> None:
        current[: HEAD + len(raw)] = len(raw).to_bytes(HEAD) + raw
        target.check(raw)

    def mutator(raw: bytes, room: int, seed: int) -> bytes:
        made = changed(raw, seed)
        return made if made is not None and len(made) <= room else bytes(atheris.Mutate(raw, room))

    arguments = [sys.argv[0], f"-max_len={BYTES}", *options]
    if target.structured:
        atheris.Setup(arguments, check, custom_mutator=mutator)
    else:
        atheris.Setup(arguments, check)
    atheris.Fuzz()


if __name__ == "__main__":
    # Some modules are imported when they are first needed: those are instrumented too.
    with atheris.instrument_imports(include=["reconciler"]):
        main(sys.argv[1], sys.argv[2], sys.argv[3:])
