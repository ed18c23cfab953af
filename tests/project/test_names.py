"""Names are standard words: none is made of the words that this project does not use."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.project.test_budgets import words
from tests.project.to_do import ROOMS_TO_DO
from tests.project.tree import Definition, modules

BANNED = frozenset({
    "ailing", "astray", "elsewhere", "fleeting", "given", "hear", "heard", "held", "kept", "lasting", "look", "looked",
    "looks", "mind", "minds", "nobody", "outfit", "said", "say", "says", "settle", "settled", "settles", "standing",
    "stir", "stirred", "stirs", "tell", "tells", "told", "wardrobe", "whoever",
})  # fmt: skip
"""Not part of any name: each of these words has a standard one in its place, or several meanings."""


def defined(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of whatever ``module`` names: definitions, parameters, variables, attributes, aliases."""
    for node in ast.walk(module):
        line = getattr(node, "lineno", 0)
        if isinstance(node, Definition):
            yield line, node.name
        elif isinstance(node, ast.arg):
            yield line, node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield line, node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            yield line, node.name or ""
        elif isinstance(node, ast.MatchMapping):
            yield line, node.rest or ""
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((line, alias.asname or "") for alias in node.names)


def room(path: str) -> str:
    """``reconciler/model/key.py`` → ``model``; the engine of this host, the largest, is a room of its own."""
    parts = path.removesuffix(".py").split("/")
    return "/".join(parts[1:3]) if parts[1] == "engines" and len(parts) > 3 else parts[1]


def banned(path: str, module: ast.Module) -> list[str]:
    """Every name in ``module`` that has a banned word, and where it is, once for each line."""
    found = {(line, name) for line, name in defined(module) if BANNED & set(words(name))}
    parts = [(0, part) for part in path.removesuffix(".py").split("/") if BANNED & set(words(part))]
    return [f"{path}:{line} {name}" for line, name in [*parts, *sorted(found)]]


def test_no_name_is_made_of_a_banned_word() -> None:
    found = [place for path, module in modules().items() for place in banned(path, module)]
    counts = Counter(room(place.split(":")[0]) for place in found)
    wrong = {
        place for place in found if counts[room(place.split(":")[0])] > ROOMS_TO_DO.get(room(place.split(":")[0]), 0)
    }
    assert wrong == set(), "rename these"
    assert dict(counts) == ROOMS_TO_DO, "fewer than listed: lower the numbers in tests/project/to_do.py"


def test_all_kinds_of_names_are_found() -> None:
    text = """
import a as told
def tell(kept, *given, said=1):
    self.held = elsewhere = [lambda look: 0 for mind in ()]
    try: pass
    except E as stir: pass
    match x:
        case {**astray}: pass
        case [*nobody]: pass
        case hear: pass
class Standing:
    settle: int
lookup = lookup_all = holds = 1
"""
    names = {place.split()[1] for place in banned("reconciler/x.py", ast.parse(text))}
    assert names == {
        "told", "tell", "kept", "given", "said", "held", "elsewhere", "look", "mind", "stir", "astray", "nobody",
        "hear", "Standing", "settle",
    }  # fmt: skip
