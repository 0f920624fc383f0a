"""What a provider rejects about a request, as named rules, and what an edit of ours newly made so (I8).

`list_violations` reports why the provider would reject a request. A client's own invalid or unfinished request is
forwarded unchanged, so a live session asks `list_new_violations` what its edit has added. The rules quote the
providers' own errors. Types are not checked here: the providers' packages hold them, and the tests validate against
those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from elision.providers.provider_table import find_provider
from elision.providers.shared.violation import Violation


def list_violations(dialect: str, request: Mapping[str, Any]) -> list[Violation]:
    """Return every reason why the provider would reject `request`, a whole body as JSON. Raises SpecError (dialect)."""
    provider = find_provider(dialect)
    parsed = provider.read_for_rules(request)
    violations: list[Violation] = []
    for rule in provider.rules:
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
