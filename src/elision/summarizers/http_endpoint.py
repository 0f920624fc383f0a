"""A model behind HTTP that writes summaries, whichever API it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elision.providers.llm.answers import EndpointAnswer, EndpointFault
from elision.providers.llm.client import ClientFormat, LlmClient
from elision.providers.provider import Provider
from elision.summarizers.model_endpoint import EndpointRequest
from elision.trajectory.plan import LivePrefix


class HttpEndpoint:
    """A model of `provider`; it may extend live prefixes of the same API and model.

    key, base_url, headers, extra, proxy: as `LlmClient` takes them. An agent that sets fields on which its prompt cache
    depends (Anthropic: `thinking`, `output_config`) has to have them in `extra` too, or the cache is not read.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        *,
        key: str = "",
        base_url: str = "",
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        proxy: str = "",
    ) -> None:
        self.model = model
        self._dialect = provider.name
        self._client = LlmClient(
            provider.client,
            provider.host,
            model,
            key=key,
            base_url=base_url,
            headers=headers,
            extra=extra,
            proxy=proxy,
        )

    def __repr__(self) -> str:
        return f"HttpEndpoint({self.model!r}, {self._client.url!r})"

    def can_extend(self, live: LivePrefix) -> bool:
        return live.dialect == self._dialect and live.model == self.model

    def ask(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault:
        return self._client.ask(lambda: self._build_body(request), request.seconds)

    def _build_body(self, request: EndpointRequest) -> dict[str, Any]:
        """Return the request's body, by the quirks learned so far."""
        client = self._client
        return {
            **({"model": self.model} if client.format.names_model else {}),
            **build_summary_fields(client.format, request, is_official=client.is_official),
            **client.quirks.build_fields(request.max_tokens, request.temperature),
            **client.extra,
        }


def build_summary_fields(format_: ClientFormat, request: EndpointRequest, *, is_official: bool) -> dict[str, Any]:
    """Return the fields that hold the conversation: the live prefix if there is one, and what is asked.

    is_official: whether the provider itself serves the model.
    """
    live = request.live
    asked = format_.make_user_message(request.text)
    if live is None:
        conversation = format_.build_conversation([asked], None, ())
    else:
        conversation = format_.build_conversation([*live.messages, asked], live.system, live.tools)
    return {**conversation, **format_.add_to_extension(live, is_official)}
