"""What a provider rejects about a request, as named rules, and what an edit of ours newly made so (I8).

`list_violations` reports why the provider would reject a request. A client's own invalid or unfinished request is
forwarded unchanged, so tests ask `list_new_violations` what an edit has added. A live session asks the provider itself:
where it refuses an edited request, the client's own is sent. The rules quote the providers' own errors. Types are not
checked here: the providers' packages hold them, and `request_checks` validates against those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from elision.providers.provider_table import find_provider
from elision.testing.request_rules import rules_anthropic, rules_gemini, rules_openai_chat, rules_openai_responses
from elision.testing.request_rules.violation import Rule, Violation, get_rule_name

__all__ = ["RULES", "Rule", "Violation", "get_rule_name", "list_new_violations", "list_violations"]

#: API -> what it rejects.
RULES: Final[Mapping[str, Sequence[Rule]]] = {
    "openai": rules_openai_chat.RULES,
    "openai-responses": rules_openai_responses.RULES,
    "anthropic": rules_anthropic.RULES,
    "gemini": rules_gemini.RULES,
}


def list_violations(dialect: str, request: Mapping[str, Any]) -> list[Violation]:
    """Return every reason why the provider would reject `request`, a whole body as JSON. Raises SpecError (dialect)."""
    name = find_provider(dialect).name
    parsed = rules_anthropic.AnthropicRequest(request) if name == "anthropic" else request
    return [replace(found, rule=get_rule_name(rule)) for rule in RULES[name] for found in rule(parsed)]


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
