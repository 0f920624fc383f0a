"""Models that write summaries: behind HTTP, and by way of LiteLLM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from elision.errors import MissingExtra
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, parse_refusal
from elision.providers.llm.client import ClientFormat, LlmClient
from elision.providers.openai_chat.record import OPENAI_CHAT
from elision.providers.provider import Provider
from elision.providers.shared.json_reading import number_in
from elision.trajectory.plan import LivePrefix


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRequest:
    """One request.

    text:       the user message; the last one where `live` comes before it.
    max_tokens: of the answer, reasoning included.
    seconds:    how long it may take.
    temperature: 0 or more; None leaves it to the server.
    """

    text: str
    max_tokens: int
    seconds: float
    live: LivePrefix | None = None
    temperature: float | None = 0


class Endpoint(Protocol):
    """A model. `ask` does not raise for what a server does: it returns an EndpointFault."""

    @property
    def model(self) -> str: ...

    def can_extend(self, live: LivePrefix) -> bool:
        """Return whether a request that extends `live` would read the cache that holds `live`."""
        ...

    def ask(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault: ...


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


class LiteLLMEndpoint:
    """A model by LiteLLM's name for it (`bedrock/...`, `gemini/...`). Nothing else imports litellm.

    key:   "" lets LiteLLM find one as it does. extra: further arguments of `litellm.completion`.
    LiteLLM drops parameters that a model does not take. Its own retries are off: ours keep to the time limit.
    Raises MissingExtra without litellm.
    """

    def __init__(
        self, model: str, *, key: str = "", base_url: str = "", extra: Mapping[str, Any] | None = None
    ) -> None:
        try:
            import litellm
        except ImportError as error:
            raise MissingExtra("a summary written by way of LiteLLM", "litellm") from error
        self.model = model
        self._complete = litellm.completion
        self._own = {
            **({"api_key": key} if key else {}),
            **({"base_url": base_url} if base_url else {}),
            **(extra or {}),
        }

    def __repr__(self) -> str:
        return f"LiteLLMEndpoint({self.model!r})"

    def can_extend(self, live: LivePrefix) -> bool:
        return live.dialect == OPENAI_CHAT.name and live.model == self.model

    def ask(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault:
        temperature = {} if request.temperature is None else {"temperature": request.temperature}
        try:
            reply = self._complete(
                model=self.model,
                **build_summary_fields(OPENAI_CHAT.client, request, is_official=False),
                max_tokens=request.max_tokens,
                **temperature,
                timeout=request.seconds,
                num_retries=0,
                max_retries=0,
                drop_params=True,
                **self._own,
            )
        except Exception as error:  # noqa: BLE001 - whatever a hundred providers' clients raise is no answer
            return _convert_error(error)
        answer = OPENAI_CHAT.client.parse_answer(reply.model_dump())
        if isinstance(answer, EndpointFault):
            return answer
        return _add_cost(answer, reply)


def _convert_error(error: Exception) -> EndpointFault:
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    if kind in ("Timeout", "APITimeoutError"):
        return EndpointFault(cause="timeout", reason=f"no answer in time ({kind})")
    if kind == "APIConnectionError" or not isinstance(status, int):
        return EndpointFault(cause="connection", reason=f"the call failed ({kind})")
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return parse_refusal(status, str(error), {str(name).lower(): str(value) for name, value in headers.items()})


def _add_cost(answer: EndpointAnswer, reply: Any) -> EndpointAnswer:
    """Return `answer` with the cost that LiteLLM computes itself."""
    usd = number_in((getattr(reply, "_hidden_params", None) or {}).get("response_cost"))
    if not usd or answer.usage is None:
        return answer
    return EndpointAnswer(text=answer.text, usage=msgspec.structs.replace(answer.usage, usd=usd), stop=answer.stop)
