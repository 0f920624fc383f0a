"""How the messages of an API are counted in a replay."""

from __future__ import annotations

from elision.providers.provider_table import find_provider
from elision.trajectory.tokens import Sizer, make_counter


def sizer(dialect: str, tokens: str) -> Sizer:
    """Counts what `dialect` sends, with the counter `tokens`: Anthropic and Responses take reasoning back only sealed,
    so what is recorded in clear text is not sent and not counted there. Raises SpecError."""
    return Sizer(make_counter(tokens), reasoning=find_provider(dialect).takes_clear_reasoning)
