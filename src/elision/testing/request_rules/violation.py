"""One reason why a provider would reject a request, and what a rule is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

from elision.providers.shared.json_reading import Json, text_in


@dataclass(frozen=True, slots=True)
class Violation:
    """place:   where, as providers write it: `messages.3.content.0`, 0-based.
    reason:  what is wrong there, in words that fit the provider's error.
    subject: what it is about, apart from its place, which edits move: a call id, a tool's name; "" if it has no name.
    rule:    the name of the rule: of the function that states it, with dashes. `list_violations` sets it.
    """

    place: str
    reason: str
    subject: str = ""
    rule: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.reason} [{self.rule}]"


#: Looks at a whole request, as its dialect reads it for all rules. Linear in its size; never raises: junk is left to
#: the rule that is about junk.
Rule: TypeAlias = Callable[[Any], Iterator[Violation]]


def get_rule_name(rule: Rule) -> str:
    """Return the name of a rule: `calls-are-answered` for the function `calls_are_answered`."""
    return getattr(rule, "__name__", "rule").replace("_", "-")


def find_unknown_roles(messages: Iterable[tuple[int, Json]], roles: Set[str]) -> Iterator[Violation]:
    """Yield a violation for each message whose role is none of `roles`."""
    for place, message in messages:
        role = message.get("role")
        if text_in(role) not in roles:
            reason = f"role {role!r} is none of {', '.join(sorted(roles))}"
            yield Violation(f"messages.{place}.role", reason, str(role))


def find_doubled_names(names: Iterable[str], what: str) -> Iterator[Violation]:
    """Yield a violation for each name that several have; "" is the name of none. what: they are, in the plural."""
    for name, count in Counter(names).items():
        if name and count > 1:
            yield Violation("tools", f"{count} {what} named {name!r}", name)
