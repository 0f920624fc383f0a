"""The table of all APIs, and which of them messages or tools belong to. A further API is a package and a line here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from elision.errors import SpecError
from elision.providers.anthropic.record import ANTHROPIC
from elision.providers.gemini.record import GEMINI
from elision.providers.host import Host
from elision.providers.live.client_messages import convert_to_json
from elision.providers.openai_chat.record import OPENAI_CHAT
from elision.providers.openai_responses.record import OPENAI_RESPONSES
from elision.providers.provider import Provider
from elision.providers.shared.capabilities import normalize_model
from elision.providers.shared.json_reading import mapping_in, mappings_in

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


def detect_provider(messages: Sequence[Any], system: object, tools: object, model: str) -> Provider:
    """Return the API of which messages, system prompt and tools bear signs; OpenAI chat if there is none.

    model: decides where nothing else does.
    """
    found = recognize_provider(messages, system, tools, model)
    if found is not None:
        return found
    # System prompts among the messages are those of chat, or of Responses, whose items will show it.
    is_prompted = any(
        mapping_in(convert_to_json(message)).get("role") in ("system", "developer") for message in messages
    )
    if tools or is_prompted:
        return DEFAULT_PROVIDER
    return _find_by_model(model, list(PROVIDERS.values())) or DEFAULT_PROVIDER


def recognize_provider(messages: Sequence[Any], system: object, tools: object, model: str = "") -> Provider | None:
    """Return the API of which there are signs, or None.

    Messages go before tools, and both before a system prompt outside the messages, which is a sign of the model's own
    API: some callers give one for an API that has none.
    """
    found = find_message_provider(messages)
    if found is not None:
        return found
    definitions = mappings_in(convert_to_json(tools)) if tools else []
    for provider in PROVIDERS.values():
        if provider.has_own_signs([], {"tools": definitions}):
            return provider
    for definition in definitions:
        for provider in PROVIDERS.values():
            if provider.defines_tool(definition):
                return provider
    if isinstance(convert_to_json(system), str | list):
        with_system = [provider for provider in PROVIDERS.values() if provider.system_field]
        return _find_by_model(model, with_system) or ANTHROPIC
    if definitions:
        return DEFAULT_PROVIDER
    return None


def find_message_provider(messages: Sequence[Any], expected: Provider | None = None) -> Provider | None:
    """Return the API of which `messages` alone have signs; `expected` where they have signs of it; None for none."""
    looked = [mapping_in(convert_to_json(message)) for message in messages]
    found = [provider for provider in PROVIDERS.values() if provider.has_own_signs(looked, {})]
    if any("tool_calls" in message or message.get("role") == "tool" for message in looked):
        found.append(DEFAULT_PROVIDER)
    if expected in found:
        return expected
    return found[0] if found else None


def find_tools_provider(tools: object) -> Provider | None:
    """Return the API in whose shape the first tool is defined; None if that is not known."""
    if not tools:
        return None
    # Every call asks, and definitions may be large: those after the first are not read.
    for tool in tools if isinstance(tools, list | tuple) else mappings_in(convert_to_json(tools)):
        definition = convert_to_json(tool)
        if isinstance(definition, dict):
            return next((each for each in PROVIDERS.values() if each.defines_tool(definition)), None)
    return None


def _find_by_model(model: str, providers: Sequence[Provider]) -> Provider | None:
    """Return the first of `providers` whose own models have such names."""
    name = normalize_model(model)
    for provider in providers:
        if provider.own_models is not None and provider.own_models.match(name):
            return provider
    return None
