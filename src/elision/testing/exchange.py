"""A request that a provider received and its response, as values: a reply, a refusal, or what went wrong on the way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from elision.providers.provider import Api
from elision.providers.provider_table import HOSTS
from elision.providers.shared.json_reading import Json
from elision.testing.recorded_run import RecordedReply
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage

#: Characters of a delta; providers send a few tokens at a time.
MAX_CHUNK_LENGTH = 24

_CHUNK = re.compile(rf".{{1,{MAX_CHUNK_LENGTH}}}", re.DOTALL)


def split_text(text: str) -> Iterator[str]:
    """Split `text` into chunks of at most `MAX_CHUNK_LENGTH` characters; together they are `text`."""
    return (found[0] for found in _CHUNK.finditer(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplySpec:
    """One answer.

    model: as the request named it. id: unique among the answers, without the prefix that each API gives it.
    created: seconds since the epoch. tools: of the request. include_usage: whether a chat stream ends with the usage.
    signature: of the thinking. dropped: what became of the request's own thinking (`input_transformations`).
    """

    reply: RecordedReply
    usage: Usage
    model: str
    id: str
    created: int = 0
    tools: Sequence[Any] = ()
    include_usage: bool = False
    signature: str = ""
    dropped: Sequence[dict[str, Any]] = ()


def decode_input(call: Action) -> dict[str, Any]:
    """Return a call's arguments as an object. What is none (of a free-form tool) is put under one name."""
    if call.decoded_arguments or call.arguments.strip() in ("", "{}"):
        return dict(call.decoded_arguments)
    return {"input": call.arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The request is answered with an error in the provider's own shape.

    status:      429, 500, 503, 529 (overloaded), 401 ...
    retry_after: seconds, sent as a header; None for none.
    message:     "" for what the provider usually says.
    """

    status: int
    retry_after: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The connection closes midway: after `after` events of a stream, or half of a plain body."""

    after: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """The answer comes late. first: seconds before its first byte. each: seconds before every further event."""

    first: float = 0.0
    each: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbled:
    """Status 200 and a body that is no JSON; in a stream, event number `after` is broken (counted from 0)."""

    after: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A stream reports midway that the provider failed: an error event after `after` events, then the end."""

    after: int = 3
    message: str = "Overloaded"


Fault: TypeAlias = Refused | Cut | Slow | Garbled | Broken


#: Headers that hold a credential; they are never kept.
CREDENTIALS: Final = frozenset(
    ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization")
)


@dataclass(slots=True, kw_only=True)
class ReceivedRequest:
    """One request, and what became of it.

    body:     as parsed; {} where it was no JSON object. Gemini's has the model and `stream` of its path.
    raw:      its very bytes.
    headers:  without credentials, names in lower case. key: a short hash of the API key; "" where none was sent.
    run, turn: the recorded run and the turn that answered; "" and 0 where none did.
    problems: what the provider refuses it for.
    usage:    as it was reported.
    finished: whether the whole answer went out; stays False where it was cut or the client went away.
    """

    api: Api
    raw: bytes = field(repr=False)
    body: Json = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    key: str
    status: int = 200
    run: str = ""
    turn: int = 0
    stream: bool = False
    problems: tuple[str, ...] = ()
    usage: Usage | None = None
    fault: Fault | None = None
    finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderResponse:
    """What goes back. events: of a stream, each with its name ("" where the API gives events none); None for a body."""

    status: int = 200
    body: Json = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    events: Iterable[tuple[str, str]] | None = None


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
