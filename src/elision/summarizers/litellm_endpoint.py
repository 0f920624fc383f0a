"""Any provider that LiteLLM knows. The only file that imports litellm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elision.errors import MissingExtra
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, parse_refusal
from elision.providers.openai_chat.record import OPENAI_CHAT
from elision.providers.shared.json_reading import number_in
from elision.summarizers.http_endpoint import build_summary_fields
from elision.summarizers.model_endpoint import EndpointRequest
from elision.trajectory.plan import LivePrefix
from elision.trajectory.usage import Usage


class LiteLLMEndpoint:
    """A model by LiteLLM's name for it (`bedrock/...`, `gemini/...`).

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
    usage = answer.usage
    if not usd or usage is None:
        return answer
    priced = Usage(
        input=usage.input, cache_read=usage.cache_read, cache_write=usage.cache_write, output=usage.output, usd=usd
    )
    return EndpointAnswer(text=answer.text, usage=priced, stop=answer.stop)
