"""What a provider rejects about a request, as named rules, and what an edit of ours newly made so (I8).

`list_violations` reports why the provider would reject a request. A client's own invalid or unfinished request is
forwarded unchanged, so a live session asks `list_new_violations` what its edit has added. The rules quote the
providers' own errors. Types are not checked here: the providers' packages hold them, and the tests validate against
those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.errors import SpecError
from elision.providers.anthropic import rules as anthropic
from elision.providers.openai_chat import rules as openai_chat
from elision.providers.openai_responses import rules as openai_responses
from elision.providers.shared.violation import Rule, Violation

__all__ = ["RULES", "Violation", "list_new_violations", "list_violations"]

#: Dialect -> its rules, in the order in which they are reported.
RULES: Final[Mapping[str, Sequence[Rule]]] = {
    "openai": openai_chat.RULES,
    "openai-responses": openai_responses.RULES,
    "anthropic": anthropic.RULES,
}


def list_violations(dialect: str, request: Mapping[str, Any]) -> list[Violation]:
    """Return every reason why the provider would reject `request`, a whole body as JSON. Raises SpecError (dialect)."""
    rules = _find_rules(dialect)
    # Rules of one dialect share what they read of a request.
    parsed = anthropic.AnthropicRequest(request) if dialect == "anthropic" else request
    violations: list[Violation] = []
    for rule in rules:
        violations += rule(parsed)
    return violations


def list_new_violations(dialect: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Violation]:
    """Return the violations of `after` that `before` did not have. Raises SpecError (dialect).

    Places move when messages are edited, so two violations are the same if they break one rule about one subject.
    """
    known = Counter((each.rule, each.subject) for each in list_violations(dialect, before))
    found = []
    for each in list_violations(dialect, after):
        if known[each.rule, each.subject] > 0:
            known[each.rule, each.subject] -= 1
        else:
            found.append(each)
    return found


def _find_rules(dialect: str) -> Sequence[Rule]:
    if dialect not in RULES:
        raise SpecError(f"no dialect {dialect!r}; there are: {', '.join(RULES)}")
    return RULES[dialect]
