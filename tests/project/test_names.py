"""Names are standard words: none is made of the words that this project does not use."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from tests.project.test_budgets import words
from tests.project.to_do import ROOMS_TO_DO
from tests.project.tree import ROOT, Definition, functions, listed, modules, walk

BANNED = frozenset(
    {
        "ailing",
        "astray",
        "elsewhere",
        "fleeting",
        "given",
        "hear",
        "heard",
        "held",
        "kept",
        "lasting",
        "look",
        "looked",
        "looks",
        "mind",
        "minds",
        "nobody",
        "outfit",
        "said",
        "say",
        "says",
        "settle",
        "settled",
        "settles",
        "standing",
        "stir",
        "stirred",
        "stirs",
        "tell",
        "tells",
        "told",
        "wardrobe",
        "whoever",
    }
)
"""Not part of any name: each of these words has a standard one in its place, or several meanings."""

PRONOUNS = frozenset({"each", "found", "known", "made", "place", "wanted"})
"""Words that do not say of what a variable is one; they are for a line or two."""

ONE_WORD = frozenset({"cli", "command", "log", "main", "ready"})
"""Functions of modules with one word: entries of programs, and what all projects call so."""

PARTICIPLES = frozenset(
    {
        "begun",
        "bound",
        "broken",
        "built",
        "chosen",
        "done",
        "drawn",
        "found",
        "gone",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "left",
        "lost",
        "made",
        "meant",
        "met",
        "seen",
        "sent",
        "shown",
        "taken",
        "told",
        "understood",
        "withdrawn",
        "written",
    }
)
"""Irregular participles, where no verb or noun of the field has the same form, as ``read`` and ``set`` do."""

ENDS_LIKE_A_PARTICIPLE = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "succeed"})
"""Verbs that end in "ed"."""

NAMED_BY_TABLES = (
    "reconciler/cli/commands/",
    "reconciler/platform_cli/commands/",
    "reconciler/platform_cli/table/",
    "reconciler/reasons.py",
)
"""Where a function is an entry of a table: a command has the name that people type, a text that of its column."""

BESIDE = ("docs", "examples", "tests")
"""Folders beside the package whose names obey the same rule."""

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
"""The words of a text, those of a name apart; only files that have a banned one are parsed."""
_PRONOUN = re.compile(rf"(?<![.\w])(?:{'|'.join(sorted(PRONOUNS))})\b")
"""A pronoun that is no attribute."""
_FUNCTION = re.compile(r"^(?=(?:async )?def |class | {4}(?:async )?def \w+\(self)", re.MULTILINE)
"""The beginning of a function of a module or of a method."""
_KEY = re.compile(r"^[ ]*(?:- )*([\w-]+):(?:\s|$)|[{,]\s*([\w-]+):\s", re.MULTILINE)
"""The keys of a YAML or JSON file, in block and in flow style."""


def defined(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of all that ``module`` names: definitions, parameters, variables, attributes, aliases."""
    for node in walk(module):
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
    if parts[0] in BESIDE:
        return "/".join(parts[:2])
    return "/".join(parts[1:3]) if parts[1] == "engines" and len(parts) > 3 else parts[1]


def banned(path: str, module: ast.Module) -> list[str]:
    """Every name in ``module`` that has a banned word, and where it is, once for each line."""
    found = {(line, name) for line, name in defined(module) if BANNED & set(words(name))}
    return [*banned_path(path), *(f"{path}:{line} {name}" for line, name in sorted(found))]


def banned_path(path: str) -> list[str]:
    """Folders and the file of ``path`` whose names have a banned word."""
    return [f"{path}:0 {part}" for part in path.split("/") if BANNED & set(words(re.sub(r"\W", "_", part)))]


def banned_keys(path: str, text: str) -> list[str]:
    """Every key of a YAML or JSON file that has a banned word."""
    keys = {one or other for one, other in _KEY.findall(text)}
    return [f"{path}:0 {key}" for key in sorted(keys) if BANNED & set(words(key.replace("-", "_")))]


def has_banned_word(text: str) -> bool:
    """Whether a banned word is in ``text``, in a name or by itself."""
    return not BANNED.isdisjoint(map(str.lower, set(_WORD.findall(text))))


def banned_beside(path: str) -> list[str]:
    """Every banned name in a file beside the package: in its path, and in its code or keys."""
    kind = path.rpartition(".")[2]
    text = (ROOT / path).read_text() if kind in ("py", "yaml", "yml", "json") else ""
    if not has_banned_word(text):
        return banned_path(path)
    return banned(path, ast.parse(text)) if kind == "py" else [*banned_path(path), *banned_keys(path, text)]


def test_no_name_is_made_of_a_banned_word() -> None:
    offenders = [
        offender
        for path, module in modules().items()
        for offender in (banned(path, module) if has_banned_word((ROOT / path).read_text()) else banned_path(path))
    ]
    offenders += [offender for path in listed(*BESIDE) if (ROOT / path).is_file() for offender in banned_beside(path)]
    counts = Counter(room(offender.split(":")[0]) for offender in offenders)
    wrong = {
        offender
        for offender in offenders
        if counts[room(offender.split(":")[0])] > ROOMS_TO_DO.get(room(offender.split(":")[0]), 0)
    }
    assert wrong == set(), "rename these"
    assert dict(counts) == ROOMS_TO_DO, "fewer than listed: lower the numbers in tests/project/to_do.py"


def test_a_function_of_a_module_has_a_verb_and_a_noun() -> None:
    offenders = {
        f"{path}:{node.lineno} {node.name}"
        for path, module in modules().items()
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and "_" not in node.name.strip("_")
        and node.name not in ONE_WORD
        and not path.startswith(NAMED_BY_TABLES)
    }
    assert offenders == set()


def is_participle(name: str) -> bool:
    """Whether ``name`` is a participle alone, such as ``applied``: neither what a function does nor what it returns."""
    word = name.strip("_")
    return word in PARTICIPLES or (word.isalpha() and word.endswith("ed") and word not in ENDS_LIKE_A_PARTICIPLE)


def test_no_participle_alone_is_the_name_of_a_function_or_method() -> None:
    found = {f"{place}" for place, function in functions() if is_participle(function.name)}
    assert found == set(), "a verb with its object; a value is a noun; a question begins with is or has"


def test_a_participle_is_no_verb_of_the_same_form() -> None:
    names = ("applied", "_opened", "made", "__known__")
    assert [name for name in names if not is_participle(name)] == []
    names = ("apply", "is_applied", "applied_commit", "feed", "read", "set", "run", "red_line")
    assert [name for name in names if is_participle(name)] == []


def test_no_pronoun_is_a_variable_over_more_than_three_lines() -> None:
    offenders = {
        offender
        for path, module in modules().items()
        if may_have_long_pronouns((ROOT / path).read_text())
        for offender in long_pronouns(path, module)
    }
    for path in listed("tests/*.py"):
        text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
        if may_have_long_pronouns(text):
            offenders |= {*long_pronouns(path, ast.parse(text))}
    assert offenders == set()


def long_pronouns(path: str, module: ast.Module) -> Iterator[str]:
    """Every pronoun that is a variable over more than three lines of a function."""
    for node in walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for name, lines in lines_of_variables(node).items():
                if name in PRONOUNS and max(lines) - min(lines) > 2:
                    yield f"{path}:{node.lineno} {node.name}: {name}"


def may_have_long_pronouns(text: str) -> bool:
    """Whether a pronoun is on lines of one function that are far apart; only such files are parsed."""
    for function in _FUNCTION.split(text):
        first: dict[str, int] = {}
        for number, line in enumerate(function.split("\n")):
            if any(number - first.setdefault(name, number) > 2 for name in _PRONOUN.findall(line)):
                return True
    return False


def lines_of_variables(function: ast.AST) -> dict[str, set[int]]:
    """The lines on which a function has each of its variables and parameters, those of inner functions apart."""
    lines: dict[str, set[int]] = {}
    nodes, bound = [*ast.iter_child_nodes(function)], set[str]()
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        if name:
            lines.setdefault(name, set()).add(node.lineno)
            bound |= {name} if isinstance(node, ast.arg) or isinstance(node.ctx, ast.Store) else set()
        nodes += ast.iter_child_nodes(node)
    return {name: lines[name] for name in bound}


def test_a_pronoun_over_four_lines_is_found_and_one_over_three_is_not() -> None:
    short = "def f():\n    found = 1\n\n    return found\n"
    for text, offenders in ((short, []), (short.replace("\n\n", "\n\n\n"), ["a.py:1 f: found"])):
        assert may_have_long_pronouns(text) is bool(offenders)
        assert [*long_pronouns("a.py", ast.parse(text))] == offenders


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
        "told",
        "tell",
        "kept",
        "given",
        "said",
        "held",
        "elsewhere",
        "look",
        "mind",
        "stir",
        "astray",
        "nobody",
        "hear",
        "Standing",
        "settle",
    }


def test_case_files_and_their_keys_are_read_too() -> None:
    text = "says: 1\n- told: {held: {}, x-look: 1, uphold: [], 'text': said}\nwhat is given: |\n  kept up: 1\n"
    names = {place.split()[1] for place in banned_keys("a.yaml", text)}
    assert names == {"says", "told", "held", "x-look"}
    assert banned_path("tests/cases/given/fails-elsewhere.yaml") == [
        "tests/cases/given/fails-elsewhere.yaml:0 given",
        "tests/cases/given/fails-elsewhere.yaml:0 fails-elsewhere.yaml",
    ]
    for name in ("told", "tell_all", "is_told", "FakeTold", "ToldAll", "GIVEN"):
        assert has_banned_word(f"x = {name}.y"), name
    assert not has_banned_word("lookup = holds.LOOKUPS")
