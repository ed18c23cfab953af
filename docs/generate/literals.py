"""Words that the program's source holds as texts, docstrings left out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.project.tree import modules


def texts(*places: str) -> Iterator[str]:
    """Every text in the modules whose path begins with one of ``places`` (default: all)."""
    for path, module in modules().items():
        if path.startswith(places or ("",)):
            documentation = set(map(id, _bare(module)))
            for node in ast.walk(module):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                    yield node.value


def words(pattern: str, *places: str) -> set[str]:
    """Those that match ``pattern`` from end to end."""
    return {text for text in texts(*places) if re.fullmatch(pattern, text)}


def visible(text: str) -> str:
    """``text`` with characters that a page cannot show written as escapes."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)


def _bare(module: ast.Module) -> Iterator[ast.Constant]:
    """Texts that stand alone as a statement."""
    for node in ast.walk(module):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
