"""Which check belongs to which code, what each is called with, and where that is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints

from dlcheck import pages
from dlcheck.findings import Finding

if TYPE_CHECKING:
    from dlcheck.model import Project


class Rule(NamedTuple):
    """A check and the kind of fact that it is called with, from its first parameter's annotation.

    ``at_fact``: what it finds stands in the ``module`` of the fact.
    """

    code: str
    check: Callable[[Any], Iterator[Finding]]
    fact: type
    at_fact: bool = False


RULES: dict[str, Rule] = {}

# How the facts of a kind are found in a project.
SOURCES: dict[type, Callable[[Project], Iterable[Any]]] = {}

Check = TypeVar("Check", bound=Callable[[Any], Iterator[Finding]])


def rule(code: str, *, at_fact: bool = False) -> Callable[[Check], Check]:
    """Register a check under its code; it is called once for each fact of its parameter's type.

    With ``at_fact`` only for those whose ``module`` findings are asked for: nothing that it finds may stand elsewhere.
    """

    def add(check: Check) -> Check:
        if not pages.is_code(code):
            raise ValueError(f"{code!r} is no code such as `ABC101`")
        fact = next((hint for name, hint in get_type_hints(check).items() if name != "return"), None)
        if not isinstance(fact, type):
            raise TypeError(f"{code}: the parameter of its check must be annotated with a kind of fact")
        if code in RULES:
            raise ValueError(f"{code} has two checks: {RULES[code].check.__name__} and {check.__name__}")
        RULES[code] = Rule(code, check, fact, at_fact)
        return check

    return add


def facts(kind: type, find: Callable[[Project], Iterable[Any]]) -> None:
    """Say how the facts of a kind are found, once for all checks that are called with them."""
    if kind in SOURCES:
        raise ValueError(f"it is known already how each {kind.__name__} is found")
    SOURCES[kind] = find


def option(project: Project, code: str, name: str) -> Any:
    """An option of a rule: what ``[tool.dlcheck.rules.CODE]`` says, else the default of its page."""
    given = project.rule_options.get(code, {})
    return given[name] if name in given else pages.load()[code].options[name].default
