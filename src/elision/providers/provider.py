"""What is known of an API, as one record. Each package of an API has one; `provider_table.py` lists them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from elision.providers.host import Host
from elision.providers.live.client_messages import LiveDialect
from elision.providers.llm.client import ClientFormat
from elision.providers.shared.base_renderer import ViewRenderer
from elision.providers.shared.json_reading import Json
from elision.providers.streaming.rounds import ApiObserver, dump_json
from elision.providers.streaming.sse import format_event
from elision.providers.streaming.streamed_response import ProviderFormat, StreamedResponse
from elision.trajectory.usage import Usage

#: The name of an API, as settings, logs and stores have it: a key of `PROVIDERS`. "openai" is chat completions.
Api: TypeAlias = str
#: What a request asks for: an answer of the model, or the number of its tokens.
Purpose: TypeAlias = Literal["complete", "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path says of a request, where its body does not: which model, and whether the answer is a stream."""

    model: str
    stream: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One API.

    name:          as settings, logs and stores have it. title: for people.
    host:          who serves it. paths: what a POST to a path below the version asks for; matched as a whole.
    read_target:   reads model and streaming from a path below the version, and its query; None for an answer in a form
                   that is not read. None itself where the body says both.
    list_field:    field of a request that holds its messages. system_field: the one of the system prompt; "" where it
                   is one of the messages.
    own_models:    matches the normalized names of models that are usually called by this API; None for none.
    has_own_signs: whether messages, or the fields of a request beside them, occur in this API alone.
    defines_tool:  whether a tool's definition is of this API, by its form.
    live:          reads a client's own messages. make_renderer: makes a renderer of views.
    render_tool:   writes a tool, of `name`, `description` and `input_schema`, as this API defines one.
    search_tool:   by which a model finds tools that are marked `defer_loading`; None where the API has none.
    list_seen_deferred: returns what a model sees of a tool so marked before it has found it.
    takes_clear_reasoning: whether reasoning in clear text is sent back, and so counted.
    checks_thinking: whether models of this API may bind their thinking to the messages before it.
    response_format: reads and writes whole responses, unstored_format those that the provider does not store.
    make_stream:   makes a streamed response of which the gateway answers the calls of some tools, by their names.
    observer:      reads what a response reports on its way by.
    make_stream_error: returns the event that ends an incomplete stream, of an error's body and the event's number.
    client:        how a model is asked by this API, for summaries and by the agent.
    usage_fields:  fields of an answer that hold its usage. usage_signs: fields that only this API's usage has, as seen
                   from the first of the table to the last.
    parse_usage:   reads a usage object; None if it is none.
    """

    name: Api
    title: str
    host: Host
    paths: Mapping[re.Pattern[bytes], Purpose]
    read_target: Callable[[bytes, bytes], Target | None] | None = None
    list_field: str
    system_field: str
    own_models: re.Pattern[str] | None
    has_own_signs: Callable[[Iterable[Json], Json], bool]
    defines_tool: Callable[[Json], bool]
    live: LiveDialect
    make_renderer: Callable[[], ViewRenderer]
    render_tool: Callable[[Mapping[str, Any]], dict[str, Any]]
    search_tool: Mapping[str, Any] | None = None
    list_seen_deferred: Callable[[Json], list[Json]] = lambda tool: []
    takes_clear_reasoning: bool = False
    checks_thinking: bool = False
    response_format: ProviderFormat
    unstored_format: ProviderFormat
    make_stream: Callable[[frozenset[str]], StreamedResponse]
    observer: ApiObserver
    make_stream_error: Callable[[Mapping[str, Any], int], bytes] = lambda body, sequence: format_event(dump_json(body))
    client: ClientFormat
    usage_fields: tuple[str, ...] = ("usage",)
    usage_signs: frozenset[str]
    parse_usage: Callable[[object], Usage | None]
