"""One client for models behind HTTP: the summarizer and the agent sit on it.

What a model does not accept is learned from its refusals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elision.providers.host import Host
from elision.providers.llm.answers import EndpointAnswer, EndpointFault
from elision.providers.llm.transport import LARGEST, Transport
from elision.trajectory.plan import LivePrefix


class ModelQuirks:
    """Fields that a model accepts, as far as they are known.

    takes_temperature: whether `temperature` may be set; reasoning models reject it.
    limit_field:       the name of the field that limits the answer; servers differ.
    group:             the field that holds both; "" where they are fields of the request itself.
    """

    def __init__(self, *, takes_temperature: bool = True, limit_field: str = "max_tokens", group: str = "") -> None:
        self.takes_temperature = takes_temperature
        self.limit_field = limit_field
        self._group = group
        self._has_switched_limit = False

    def build_fields(self, max_tokens: int, temperature: float | None = 0) -> dict[str, Any]:
        """Return the fields of a request that depend on the model. temperature: None for none."""
        fields: dict[str, Any] = {self.limit_field: max_tokens}
        if self.takes_temperature and temperature is not None:
            fields["temperature"] = temperature
        return {self._group: fields} if self._group else fields

    def learn_from(self, fault: EndpointFault) -> None:
        """Change the fields that `fault`, a refusal, names."""
        if self.takes_temperature and "temperature" in fault.reason:
            self.takes_temperature = False
            return
        if fault.max_output_tokens is not None or self._has_switched_limit or self.limit_field == "max_output_tokens":
            return
        if "max_completion_tokens" in fault.reason:
            # Once: a server that refuses both names would be asked in turn without end.
            self._has_switched_limit = True
            self.limit_field = "max_tokens" if self.limit_field == "max_completion_tokens" else "max_completion_tokens"


def post_until_accepted(
    transport: Transport, quirks: ModelQuirks, build_body: Callable[[], Mapping[str, Any]], seconds: float
) -> Mapping[str, Any] | EndpointFault:
    """Return the reply to the body that `build_body` makes.

    A refused body is sent again if `quirks` changed since: by this refusal, or by that of another thread.
    """
    body = build_body()
    reply = transport.post_json(body, seconds)
    while isinstance(reply, EndpointFault) and reply.cause == "rejected":
        quirks.learn_from(reply)
        changed = build_body()
        if changed == body:
            break
        body = changed
        reply = transport.post_json(body, seconds)
    return reply


Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFormat:
    """How requests to one API are written, and its answers read.

    make_url:           returns the address of a base URL and a model. names_model: whether the body names the model.
    make_quirks:        returns what is known beforehand of a model, of its name, of whether the provider itself serves
                        it, and of further fields of each request.
    build_conversation: returns the fields of a request for its messages, a system prompt and tools.
    make_user_message:  returns a message of the user.
    add_to_extension:   returns further fields of a request that may extend a live prefix, of the prefix and of whether
                        the provider itself serves the model.
    parse_answer:       reads the body of an answer.
    """

    make_url: Callable[[str, str], str]
    make_quirks: Callable[[str, bool, Mapping[str, Any]], ModelQuirks]
    build_conversation: Callable[[Sequence[Any], Any, Sequence[Any]], Json]
    make_user_message: Callable[[str], Json]
    add_to_extension: Callable[[LivePrefix | None, bool], Json]
    parse_answer: Callable[[Mapping[str, Any]], EndpointAnswer | EndpointFault]
    names_model: bool = True


class LlmClient:
    """A model at `base_url`, asked over HTTP. Several threads may use it.

    key:     sent as the host wants it; "" sends none (local servers). Never shown.
    headers, extra: further headers and further fields of each request. proxy: URL of an HTTP proxy.
    largest: bytes of an answer that are read.
    """

    def __init__(
        self,
        format_: ClientFormat,
        host: Host,
        model: str,
        *,
        key: str = "",
        base_url: str = "",
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
        proxy: str = "",
        largest: int = LARGEST,
    ) -> None:
        base_url = base_url or host.url
        self.format = format_
        self.model = model
        self.url = format_.make_url(base_url, model)
        self.is_official = base_url.rstrip("/") == host.url
        self.extra = dict(extra or {})
        self.quirks = format_.make_quirks(model, self.is_official, self.extra)
        keys = host.make_key_headers(key) if key else {}
        self._headers = {**host.headers, **keys, **(headers or {})}
        self._proxy = proxy
        self._largest = largest
        #: By the headers that a request adds; they seldom change.
        self._transports: dict[tuple[tuple[str, str], ...], Transport] = {}
        self._find_transport({})

    def __repr__(self) -> str:
        return f"LlmClient({self.model!r}, {self.url!r})"

    def ask(
        self, build_body: Callable[[], Mapping[str, Any]], seconds: float, headers: Mapping[str, str] | None = None
    ) -> EndpointAnswer | EndpointFault:
        """Return the answer to the body that `build_body` makes, within `seconds`.

        A body is made again where the server refuses a field that `quirks` can change. headers: of this request alone.
        """
        reply = post_until_accepted(self._find_transport(headers or {}), self.quirks, build_body, seconds)
        if isinstance(reply, EndpointFault):
            return reply
        return self.format.parse_answer(reply)

    def _find_transport(self, headers: Mapping[str, str]) -> Transport:
        added = tuple(headers.items())
        if added not in self._transports:
            own = {**self._headers, **headers}
            self._transports[added] = Transport(self.url, own, proxy=self._proxy, largest=self._largest)
        return self._transports[added]
