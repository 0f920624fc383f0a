"""Errors as providers return them: status, headers, and the body in the shape of each API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from elision.providers.provider import Api
from elision.providers.provider_table import HOSTS

#: Status -> (type, code) as OpenAI gives them.
_OPENAI_TYPES: Final[Mapping[int, tuple[str, str | None]]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", None),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", None),
    529: ("server_error", None),
}
#: Status -> the message where none is given.
_DEFAULT_MESSAGES: Final[Mapping[int, str]] = {
    401: "The API key is missing or wrong.",
    429: "Rate limit reached for requests.",
    500: "The server had an error while processing your request.",
    503: "The service is unavailable.",
    529: "Overloaded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that is not answered. code: OpenAI's own word where it has one. retry_after: seconds."""

    status: int
    message: str = ""
    code: str | None = None
    retry_after: float | None = None

    @property
    def message_text(self) -> str:
        return self.message or _DEFAULT_MESSAGES.get(self.status, "The request failed.")

    @property
    def headers(self) -> dict[str, str]:
        if self.retry_after is None:
            return {}
        return {"retry-after": f"{self.retry_after:g}"}

    def build_body(self, api: Api, id: str = "0") -> dict[str, Any]:
        """Return the JSON body of the error at `api`."""
        if api in ("anthropic", "gemini"):
            body = HOSTS[api].make_error_body(self.status, self.message_text, self.code or "")
            return {**body, "request_id": f"req_{id}"} if api == "anthropic" else body
        kind, code = _OPENAI_TYPES.get(self.status, ("server_error", None))
        return {"error": {"message": self.message_text, "type": kind, "param": None, "code": self.code or code}}


def refuse_long_prompt(api: Api, tokens: int, window: int) -> Refusal:
    """Refuse a prompt that does not fit the model's window, in the words of the provider of `api`."""
    if api == "anthropic":
        return Refusal(status=400, message=f"prompt is too long: {tokens} tokens > {window} maximum")
    if api == "gemini":
        words = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
    elif api == "openai-responses":
        words = "Your input exceeds the context window of this model. Please adjust your input and try again."
    else:
        words = (
            f"This model's maximum context length is {window} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
    return Refusal(status=400, message=words, code="context_length_exceeded")
