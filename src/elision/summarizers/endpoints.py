"""Models that write summaries: behind HTTP, by way of LiteLLM, and with answers that are kept on disk.

What was answered once is not asked again: there is one file for each request, named by a hash of kind, address, model
and body. A file is replaced in one step, so that several processes may use one folder; a damaged file counts as none.
Requests are not kept, only what they were hashed to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from elision.errors import MissingExtra, SettingError
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, parse_refusal
from elision.providers.llm.client import ClientFormat, LlmClient
from elision.providers.openai_chat.record import OPENAI_CHAT
from elision.providers.provider import Provider
from elision.providers.shared.json_reading import number_in
from elision.trajectory.plan import LivePrefix

#: Shape of a file.
ANSWER_FORMAT: Final = "elision.summary-answer/1"
#: Variable of the environment with the folder for all programs' caches.
_CACHE_VARIABLE: Final = "XDG_CACHE_HOME"
#: Bytes of a file that is read; what an endpoint accepts is smaller.
_LARGEST_FILE: Final = 16_000_000


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
        # LiteLLM computes the cost itself.
        usd = number_in((getattr(reply, "_hidden_params", None) or {}).get("response_cost"))
        if isinstance(answer, EndpointFault) or answer.usage is None or not usd:
            return answer
        return EndpointAnswer(text=answer.text, usage=msgspec.structs.replace(answer.usage, usd=usd), stop=answer.stop)


def _convert_error(error: Exception) -> EndpointFault:
    status = getattr(error, "status_code", None)
    kind = type(error).__name__
    if kind in ("Timeout", "APITimeoutError"):
        return EndpointFault(cause="timeout", reason=f"no answer in time ({kind})")
    if kind == "APIConnectionError" or not isinstance(status, int):
        return EndpointFault(cause="connection", reason=f"the call failed ({kind})")
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    return parse_refusal(status, str(error), {str(name).lower(): str(value) for name, value in headers.items()})


def find_default_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for answers where none is named: below XDG_CACHE_HOME, else below ~/.cache."""
    base = environment.get(_CACHE_VARIABLE, "")
    # By its specification a relative path is ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "elision" / "summaries"


@dataclass(slots=True)
class AnswerCounts:
    """Requests of a summarizer: sent to its model, answered from the cache, answered but not kept (disk full ...)."""

    asked: int = 0
    cached: int = 0
    unsaved: int = 0


class AnswerCache:
    """The folder `folder`, made where it is missing, for this user alone.

    Raises SettingError if nothing can be written there: that is better known before a model is paid.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise SettingError(f"{folder}: answers cannot be kept there: {reason}; name another folder") from None

    def load_answer(self, key: str) -> EndpointAnswer | EndpointFault | None:
        """Return what was kept under `key`; None for nothing, or for a damaged file."""
        try:
            with self._find_path(key).open("rb") as file:
                entry = json.loads(file.read(_LARGEST_FILE))
            if entry["format"] != ANSWER_FORMAT or entry["sha256"] != _hash_json(entry["answer"]):
                return None
            answer = entry["answer"]
            if "fault" in answer:
                return msgspec.convert(answer["fault"], EndpointFault)
            return msgspec.convert(answer, EndpointAnswer)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def save_answer(self, key: str, answer: EndpointAnswer | EndpointFault) -> bool:
        """Keep `answer` under `key`, and return whether it could be kept."""
        value = msgspec.to_builtins(answer)
        if isinstance(answer, EndpointFault):
            value = {"fault": value}
        entry = {"format": ANSWER_FORMAT, "sha256": _hash_json(value), "answer": value}
        path = self._find_path(key)
        try:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
            try:
                with open(handle, "w", encoding="ascii") as file:
                    json.dump(entry, file)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError:
            return False
        return True

    def _find_path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


class CachedEndpoint:
    """The model behind `endpoint`; answers that `cache` has are taken from there.

    kind, base_url, extra: of the endpoint, as parts of a request's name; user and password of an address are not.
    Kept are answers, and those refusals after which a shorter request follows: another run then takes the same way.
    Other faults are asked again.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        cache: AnswerCache,
        *,
        kind: str,
        base_url: str = "",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.cache = cache
        self.counts = AnswerCounts()
        # The query too: some providers name the version of their API there. Only a hash of all this is kept.
        query = urlsplit(base_url).query
        self._name = {"kind": kind, "url": strip_credentials(base_url), "query": query, "extra": dict(extra or {})}

    def __repr__(self) -> str:
        return f"CachedEndpoint({self.endpoint!r}, {str(self.cache.folder)!r})"

    @property
    def model(self) -> str:
        return self.endpoint.model

    def can_extend(self, live: LivePrefix) -> bool:
        return self.endpoint.can_extend(live)

    def ask(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault:
        key = self.compute_key(request)
        found = self.cache.load_answer(key)
        if found is not None:
            self.counts.cached += 1
            return found
        self.counts.asked += 1
        answer = self.endpoint.ask(request)
        # Only such a fault makes the next request another one.
        is_telling = (
            isinstance(answer, EndpointAnswer) or answer.cause == "overflow" or answer.max_output_tokens is not None
        )
        if is_telling:
            self.counts.unsaved += not self.cache.save_answer(key, answer)
        return answer

    def compute_key(self, request: EndpointRequest) -> str:
        """Return the hash that names `request`: of all that decides on the answer, and not of its time limit."""
        live = None if request.live is None else asdict(request.live)
        body = {
            "text": request.text,
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "live": live,
        }
        return _hash_json({"format": ANSWER_FORMAT, "model": self.model, **self._name, "body": body})


def strip_credentials(url: str) -> str:
    """Return scheme, host, port and path of `url`."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def _hash_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
