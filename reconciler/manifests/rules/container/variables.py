"""Variables within variables: ``$(NAME)`` in a value is replaced by the value of another one."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice

from reconciler.manifests.rules.container.env import asking, env_of, holders
from reconciler.manifests.rules.context import RuleContext
from reconciler.manifests.rules.registry import Advice, cross_rule, rule, warning
from reconciler.manifests.rules.text import path_of, quoted
from reconciler.model.finding import Flaw, Lookup
from reconciler.model.key import Kind
from reconciler.model.kinds.gvc import Gvc
from reconciler.model.kinds.workload import Variable, Workload
from reconciler.model.platform import BUILT_IN_VARIABLES, PLATFORM_VARIABLES, VARIABLE_PREFIX
from reconciler.model.resource import GVC_PLACEHOLDER, LookupRequest
from reconciler.model.suggest import closest

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


def embedded(value: str) -> tuple[str, ...]:
    """The names of variables that ``value`` embeds, except the built-in ones.

    ``$(A)/$$(B)`` → A: ``$$`` is a dollar sign. A text that cannot be a name, such as ``$(date +%s)``, stays as it is.
    """
    return _embedded(value) if len(value) <= 200 else _embedded.__wrapped__(value)


@lru_cache(1024)
def _embedded(value: str) -> tuple[str, ...]:
    # Without this end, each open parenthesis would be searched up to the end of the text.
    found = _EMBEDDED.findall(value, 0, value.rfind(")") + 1)
    return tuple(name for name in found if name not in BUILT_IN_VARIABLES and _NAME.fullmatch(name))


@warning("env-unknown", "docs/platform/workload.md#variables-within-variables", Kind.WORKLOAD, Kind.GVC)
def unknown(view: Workload | Gvc) -> Iterator[Flaw | Lookup]:
    """A variable that a value embeds as `$(NAME)` is set by the container, by its GVC, or by the platform.

    An unknown name stays in the value as written, unless the image sets it. The variables of the GVC count only with
    `inheritEnv`. `$$(NAME)` is text and no variable.
    """
    guesses = 0
    for index, holder in enumerate(holders(view)):
        for step, name in _strangers(holder.env):
            place = env_of(view, index)
            at = (*place, step, "value")
            if _inherits(view, index):
                yield Lookup(at, _gvc_of(view), name)
                continue
            guesses += 1
            near = _nearest(name, holder.env) if guesses <= MOST_GUESSES else ""
            more = ", take the GVC's with `inheritEnv: true`" if isinstance(view, Workload) else ""
            also = (place, (*place[:-1], "inheritEnv"))
            yield Flaw(at, *_unset(name, near or f"set it here{more}"), also)


@cross_rule("env-unknown")
def unknown_anywhere(question: LookupRequest, _: str, world: RuleContext) -> Iterator[Advice]:
    """Whether neither the container that asks nor its GVC sets the name."""
    gvc, name = world.bodies.typed(question.target, Gvc), question.detail
    if gvc is None:
        return
    env = gvc.spec.env
    if name not in world.memoized(("env", question.target), lambda: {variable.name for variable in env}):
        yield _unset(name, _nearest(name, env[:_MOST_COMPARED]) or f"set it here or in the GVC {quoted(gvc.name)}")


@rule("env-cycle", "docs/platform/workload.md#variables-within-variables", Kind.WORKLOAD, Kind.GVC)
def cycles(view: Workload | Gvc) -> Iterator[Flaw | Lookup]:
    """No variable embeds itself, neither directly nor through others.

    It would have no value. A variable of the container replaces the GVC's with the same name, so it cannot embed that
    one either.
    """
    for index, holder in enumerate(holders(view)):
        links = _links(holder.env)
        if not links:
            continue
        place = env_of(view, index)
        steps = {variable.name: step for step, variable in enumerate(holder.env)}
        for circle in islice(_circles(links), MOST_CIRCLES):
            yield Flaw((*place, steps[circle[-2]], "value"), *_circular(circle))
        if _inherits(view, index):
            for step in dict.fromkeys(step for step, _ in _strangers(holder.env)):
                yield Lookup((*place, step, "value"), _gvc_of(view), holder.env[step].name)


@cross_rule("env-cycle")
def cycles_by_way_of_the_gvc(question: LookupRequest, subject: str, world: RuleContext) -> Iterator[Advice]:
    """Whether a variable of a container embeds one of the GVC's that embeds it in turn."""
    gvc, workload = world.bodies.typed(question.target, Gvc), world.bodies.typed(subject, Workload)
    if gvc is None or workload is None:
        return
    theirs = world.memoized(("links", question.target), lambda: _links(gvc.spec.env))
    if not theirs:
        return
    container, start = question.pointer.rpartition("/env/")[0], question.detail
    env = asking(question, workload).env
    own: Links = world.memoized(
        ("own links", subject, container), lambda: dict.fromkeys((each.name for each in env), ()) | _links(env)
    )
    named = world.memoized(("named", question.target), lambda: frozenset(chain.from_iterable(theirs.values())))
    if named.isdisjoint(own):
        return  # no variable of the GVC embeds one of the container
    for circle in _walk(start, ChainMap(own, theirs), set(), _MOST_STEPS):
        if circle[-1] == start and not own.keys() >= set(circle):
            yield _circular(circle)
            return


def _inherits(view: Workload | Gvc, index: int) -> bool:
    return isinstance(view, Workload) and view.spec.containers[index].inherit_env


def _gvc_of(view: Workload | Gvc) -> str:
    return f"gvc/{view.gvc or GVC_PLACEHOLDER}"


def _strangers(env: tuple[Variable, ...]) -> list[tuple[int, str]]:
    """Each name that a value embeds and that neither ``env`` nor the platform sets, with the value's position."""
    found = [(step, each) for step, each in enumerate(env) if "$(" in each.value]
    names = [(step, name) for step, each in found for name in dict.fromkeys(embedded(each.value))]
    known = {each.name for each in env} if names else ()
    return [(step, name) for step, name in names if name not in known]


def _unset(name: str, hint: str) -> Advice:
    shown = name if len(name) <= 40 else "NAME"
    return f"nothing sets the variable {quoted(name)}", f"{hint}, or write $$({shown}) for plain text"


def _nearest(name: str, env: Iterable[Variable]) -> str:
    """The name that was probably meant; "" if none is similar."""
    if name.startswith(VARIABLE_PREFIX):
        near = closest(name[len(VARIABLE_PREFIX) : 60], PLATFORM_VARIABLES, 0.7)
        every = ", ".join(VARIABLE_PREFIX + each for each in PLATFORM_VARIABLES)
        return f"use $({VARIABLE_PREFIX}{near})" if near else f"use one of {every}"
    known = (variable.name for variable in env if abs(len(variable.name) - len(name)) <= 2)
    near = closest(name, islice(known, 20), 0.75) if len(name) <= 120 else ""
    return f"use $({near})" if near else ""


def _circular(circle: list[str]) -> Advice:
    if len(circle) == 2:
        return (
            f"{quoted(circle[0])} embeds itself",
            "write the value out",
        )
    return f"these variables embed each other in a cycle: {path_of(circle)}", "write one of the values out"


def _links(env: tuple[Variable, ...]) -> Links:
    """The variables that each variable embeds, by name; without those that embed none."""
    return {each.name: names for each in env if "$(" in each.value and (names := embedded(each.value))}


def _circles(links: Links) -> Iterator[list[str]]:
    """Paths that end where they begin; removing the last step of each leaves no cycle."""
    done: set[str] = set()
    for start in links:
        if start not in done:
            yield from _walk(start, links, done)


def _walk(
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
