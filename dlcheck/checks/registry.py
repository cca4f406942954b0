"""Which check belongs to which code, and what each is called with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar, get_type_hints

from dlcheck.findings import Finding


class Rule(NamedTuple):
    """A check and the kind of fact that it is called with, from its first parameter's annotation."""

    code: str
    check: Callable[[Any], Iterator[Finding]]
    fact: type


RULES: dict[str, Rule] = {}

Check = TypeVar("Check", bound=Callable[[Any], Iterator[Finding]])


def rule(code: str) -> Callable[[Check], Check]:
    """Register a check under its code; it is called once for each fact of its parameter's type."""

    def add(check: Check) -> Check:
        fact = next(iter(get_type_hints(check).values()))
        if code in RULES:
            raise ValueError(f"{code} has two checks: {RULES[code].check.__name__} and {check.__name__}")
        RULES[code] = Rule(code, check, fact)
        return check

    return add
