"""The table of all APIs. A further one is a package of its own and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from elision.errors import SpecError
from elision.providers.anthropic.record import ANTHROPIC
from elision.providers.gemini.record import GEMINI
from elision.providers.host import Host
from elision.providers.openai_chat.record import OPENAI_CHAT
from elision.providers.openai_responses.record import OPENAI_RESPONSES
from elision.providers.provider import Provider

#: Name -> what is known of the API, in the order in which signs of them are looked for.
PROVIDERS: Final[Mapping[str, Provider]] = {
    provider.name: provider for provider in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, GEMINI)
}
#: Name -> who serves APIs.
HOSTS: Final[Mapping[str, Host]] = {provider.host.name: provider.host for provider in PROVIDERS.values()}
#: What a user's type checker accepts as the name of an API: those of the table.
DialectName: TypeAlias = Literal["auto", "openai", "openai-responses", "anthropic", "gemini"]
#: The API that is taken where nothing shows another: many servers have it.
DEFAULT_PROVIDER: Final = OPENAI_CHAT


def find_provider(name: str) -> Provider:
    """Return what is known of the API `name`. Raises SpecError."""
    if name not in PROVIDERS:
        raise SpecError(f"no dialect {name!r}; there are: {', '.join(PROVIDERS)}")
    return PROVIDERS[name]


def find_provider_or_default(name: str) -> Provider:
    """Do the same, and return the default one for "auto" and "". Raises SpecError."""
    if name in ("", "auto"):
        return DEFAULT_PROVIDER
    return find_provider(name)
