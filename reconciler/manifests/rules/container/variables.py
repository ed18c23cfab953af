"""Variables within variables: ``$(NAME)`` in a value is replaced by the value of another one."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice

from reconciler.manifests.rules.container.env import env_of, find_asking_container, list_variable_holders
from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.registry import Advice, cross_rule, register_rule, register_warning
from reconciler.manifests.rules.text import path_of, quote_text
from reconciler.model.finding import Flaw, Lookup
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.workload import Variable, Workload
from reconciler.model.platform import BUILT_IN_VARIABLES, PLATFORM_VARIABLES, VARIABLE_PREFIX
from reconciler.model.resource import GVC_PLACEHOLDER, LookupRequest
from reconciler.model.suggest import find_closest_word

_EMBEDDED = re.compile(r"\$(?:\$|\(([^)]*)\))")
_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
Links = dict[str, tuple[str, ...]]
"""The variables that each variable embeds, by name."""
MOST_GUESSES = 10
"""The number of unknown names of a document that are compared with known ones."""
MOST_CIRCLES = 20
"""The maximum of reported cycles per container."""
_MOST_COMPARED = 1_000
"""The number of variables of a GVC that are compared to find the one that was meant."""
_MOST_STEPS = 100
"""The number of variables of a GVC that are followed from one variable of a container."""


def list_embedded_names(value: str) -> tuple[str, ...]:
    """The names of variables that ``value`` embeds, except the built-in ones.

    ``$(A)/$$(B)`` → A: ``$$`` is a dollar sign. A text that cannot be a name, such as ``$(date +%s)``, stays as it is.
    """
    return _find_embedded_names(value) if len(value) <= 200 else _find_embedded_names.__wrapped__(value)


@lru_cache(1024)
def _find_embedded_names(value: str) -> tuple[str, ...]:
    # Without this end, each open parenthesis would be searched up to the end of the text.
    names = _EMBEDDED.findall(value, 0, value.rfind(")") + 1)
    return tuple(name for name in names if name not in BUILT_IN_VARIABLES and _NAME.fullmatch(name))


@register_warning("env-unknown", "docs/platform/workload.md#variables-within-variables", Kind.WORKLOAD, Kind.GVC)
def check_unknown_variables(view: Workload | Gvc) -> Iterator[Flaw | Lookup]:
    """A variable that a value embeds as `$(NAME)` is set by the container, by its GVC, or by the platform.

    An unknown name stays in the value as written, unless the image sets it. The variables of the GVC count only with
    `inheritEnv`. `$$(NAME)` is text and no variable.
    """
    guesses = 0
    for index, holder in enumerate(list_variable_holders(view)):
        for step, name in _list_unknown_names(holder.env):
            pointer = env_of(view, index)
            at = (*pointer, step, "value")
            if _inherits_environment(view, index):
                yield Lookup(at, _gvc_of(view), name)
                continue
            guesses += 1
            near = _suggest_nearest_name(name, holder.env) if guesses <= MOST_GUESSES else ""
            more = ", take the GVC's with `inheritEnv: true`" if isinstance(view, Workload) else ""
            also = (pointer, (*pointer[:-1], "inheritEnv"))
            yield Flaw(at, *_describe_unset_variable(name, near or f"set it here{more}"), also)


@cross_rule("env-unknown")
def unknown_anywhere(question: LookupRequest, _: str, world: RuleContext) -> Iterator[Advice]:
    """Whether neither the container that asks nor its GVC sets the name."""
    gvc, name = world.bodies.read_view(question.target, Gvc), question.detail
    if gvc is None:
        return
    env = gvc.spec.env
    if name not in world.memoize(("env", question.target), lambda: {variable.name for variable in env}):
        yield _describe_unset_variable(
            name,
            _suggest_nearest_name(name, env[:_MOST_COMPARED]) or f"set it here or in the GVC {quote_text(gvc.name)}",
        )


@register_rule("env-cycle", "docs/platform/workload.md#variables-within-variables", Kind.WORKLOAD, Kind.GVC)
def check_variable_cycles(view: Workload | Gvc) -> Iterator[Flaw | Lookup]:
    """No variable embeds itself, neither directly nor through others.

    It would have no value. A variable of the container replaces the GVC's with the same name, so it cannot embed that
    one either.
    """
    for index, holder in enumerate(list_variable_holders(view)):
        links = _collect_links(holder.env)
        if not links:
            continue
        pointer = env_of(view, index)
        steps = {variable.name: step for step, variable in enumerate(holder.env)}
        for circle in islice(_find_cycles(links), MOST_CIRCLES):
            yield Flaw((*pointer, steps[circle[-2]], "value"), *_describe_cycle(circle))
        if _inherits_environment(view, index):
            for step in dict.fromkeys(step for step, _ in _list_unknown_names(holder.env)):
                yield Lookup((*pointer, step, "value"), _gvc_of(view), holder.env[step].name)


@cross_rule("env-cycle")
def cycles_by_way_of_the_gvc(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether a variable of a container embeds one of the GVC's that embeds it in turn."""
    gvc, workload = world.bodies.read_view(question.target, Gvc), world.bodies.read_view(subject, Workload)
    if gvc is None or workload is None:
        return
    theirs = world.memoize(("links", question.target), lambda: _collect_links(gvc.spec.env))
    if not theirs:
        return
    container, start = question.pointer.rpartition("/env/")[0], question.detail
    env = find_asking_container(question, workload).env
    own: Links = world.memoize(
        ("own links", subject, container),
        lambda: dict.fromkeys((variable.name for variable in env), ()) | _collect_links(env),
    )
    named = world.memoize(("named", question.target), lambda: frozenset(chain.from_iterable(theirs.values())))
    if named.isdisjoint(own):
        return  # no variable of the GVC embeds one of the container
    for circle in _walk_links(start, ChainMap(own, theirs), set(), _MOST_STEPS):
        if circle[-1] == start and not own.keys() >= set(circle):
            yield _describe_cycle(circle)
            return


def _inherits_environment(view: Workload | Gvc, index: int) -> bool:
    return isinstance(view, Workload) and view.spec.containers[index].inherit_env


def _gvc_of(view: Workload | Gvc) -> str:
    return f"gvc/{view.gvc or GVC_PLACEHOLDER}"


def _list_unknown_names(env: tuple[Variable, ...]) -> list[tuple[int, str]]:
    """Each name that a value embeds and that neither ``env`` nor the platform sets, with the value's position."""
    variables = [(step, variable) for step, variable in enumerate(env) if "$(" in variable.value]
    names = [
        (step, name) for step, variable in variables for name in dict.fromkeys(list_embedded_names(variable.value))
    ]
    declared_names = {variable.name for variable in env} if names else ()
    return [(step, name) for step, name in names if name not in declared_names]


def _describe_unset_variable(name: str, hint: str) -> Advice:
    shown = name if len(name) <= 40 else "NAME"
    return f"nothing sets the variable {quote_text(name)}", f"{hint}, or write $$({shown}) for plain text"


def _suggest_nearest_name(name: str, env: Iterable[Variable]) -> str:
    """The name that was probably meant; "" if none is similar."""
    if name.startswith(VARIABLE_PREFIX):
        near = find_closest_word(name[len(VARIABLE_PREFIX) : 60], PLATFORM_VARIABLES, 0.7)
        every = ", ".join(VARIABLE_PREFIX + text for text in PLATFORM_VARIABLES)
        return f"use $({VARIABLE_PREFIX}{near})" if near else f"use one of {every}"
    candidates = (variable.name for variable in env if abs(len(variable.name) - len(name)) <= 2)
    near = find_closest_word(name, islice(candidates, 20), 0.75) if len(name) <= 120 else ""
    return f"use $({near})" if near else ""


def _describe_cycle(circle: list[str]) -> Advice:
    if len(circle) == 2:
        return (
            f"{quote_text(circle[0])} embeds itself",
            "write the value out",
        )
    return f"these variables embed each other in a cycle: {path_of(circle)}", "write one of the values out"


def _collect_links(env: tuple[Variable, ...]) -> Links:
    """The variables that each variable embeds, by name; without those that embed none."""
    return {
        variable.name: names
        for variable in env
        if "$(" in variable.value and (names := list_embedded_names(variable.value))
    }


def _find_cycles(links: Links) -> Iterator[list[str]]:
    """Paths that end where they begin; removing the last step of each leaves no cycle."""
    done: set[str] = set()
    for start in links:
        if start not in done:
            yield from _walk_links(start, links, done)


def _walk_links(
    start: str, links: Mapping[str, tuple[str, ...]], done: set[str], most: int | None = None
) -> Iterator[list[str]]:
    """The cycles among all variables that ``start`` leads to, depth first.

    At most ``most`` variables are followed.
    """
    path, depth = [start], {start: 0}
    stack = [iter(links.get(start, ()))]
    while stack and (most is None or len(done) + len(path) <= most):
        name = next(stack[-1], None)
        if name is None:
            stack.pop()
            left = path.pop()
            del depth[left]
            done.add(left)
        elif name in depth:
            yield [*path[depth[name] :], name]
        elif name in links and name not in done:
            depth[name] = len(path)
            path.append(name)
            stack.append(iter(links[name]))
