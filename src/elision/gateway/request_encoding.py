"""Encode the request to the provider: the client's own bytes, or as many of them as a view leaves unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from operator import is_not
from typing import Any, Final

import msgspec

from elision.gateway import header_fields
from elision.gateway.json_patch import append_elements, patch_json
from elision.gateway.session_request import SessionRequest
from elision.gateway.wire import Headers
from elision.manager.context_view import ContextView
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor
from elision.providers.anthropic.bound_thinking import add_beta
from elision.providers.live.parsed_message import ParsedMessage

#: Bytes of a request that is put together on the event loop, of messages that keep their bytes or were encoded before.
MAX_INLINE_BYTES: Final = 4 * 1024 * 1024
_ACCEPT_PLAIN: Final = (b"accept-encoding", b"identity")


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request to the provider.

    is_edited:     whether it says something else than what the client sent. betas: values for the `anthropic-beta`
                   header.
    is_rewritten:  whether its bytes differ from the client's: it is edited, or tags were taken out.
    offers_recall: whether it offers recall, so that the response must not be compressed.
    """

    body: bytes
    is_edited: bool = False
    is_rewritten: bool = False
    betas: tuple[str, ...] = ()
    offers_recall: bool = False

    def filter_headers(self, headers: Headers) -> Headers:
        """Return the client's header fields as they are sent with this request."""
        kept = header_fields.filter_request_fields(
            headers, is_changed=self.is_edited or self.is_rewritten, is_read=True
        )
        if self.betas:
            kept = _add_betas(kept, self.betas)
        if self.offers_recall:
            kept = [*(pair for pair in kept if pair[0].lower() != b"accept-encoding"), _ACCEPT_PLAIN]
        return kept


async def encode_view(sent: SessionRequest, view: ContextView, messages: Sequence[ParsedMessage]) -> UpstreamRequest:
    """Encode the request of `view`: the client's own bytes where it changes nothing."""
    if not (view.added_tools or view.sent.defers_tools or view.extra) and _is_unchanged(sent, view, messages):
        return encode_own_request(sent)
    # The session's encoder reuses what it encoded before, so it takes one request at a time.
    async with sent.session.lock:
        new = sent.session.encoder.list_new(view.messages, messages)
        size = sum(len(messages[source].raw) for _, source in new if source is not None)
        if size <= INLINE_BYTES and len(sent.body.raw) <= MAX_INLINE_BYTES:
            return _encode_changes(sent, view, messages, new)
        encode = partial(_encode_changes, sent, view, messages, new)
        return await run_off_loop(encode, choose_executor(len(sent.body.raw)))


def encode_own_request(sent: SessionRequest) -> UpstreamRequest:
    """Return the client's own request: its very bytes, unless its tools are kept as they were, or it has tags, which no
    provider knows."""
    if not sent.record.is_pinned and all(message.untagged is None for message in sent.conversation.messages):
        return UpstreamRequest(sent.client.body)
    raws = [message.sent.raw for message in sent.conversation.messages]
    return UpstreamRequest(sent.body.render_changes(messages=raws), is_rewritten=True)


def encode_after_recall(sent: SessionRequest, messages: Sequence[ParsedMessage]) -> UpstreamRequest:
    """Encode the client's messages with the recall calls and results of this response, and nothing hidden."""
    raws = [message.sent.raw for message in messages]
    return UpstreamRequest(sent.body.render_changes(messages=raws), is_edited=True)


def _is_unchanged(sent: SessionRequest, view: ContextView, messages: Sequence[ParsedMessage]) -> bool:
    """Return whether the view has the client's own messages, all of them, but for their tags."""
    if len(view.messages) != len(messages) or not sent.is_client_conversation(messages):
        return False
    replaced = compress(range(len(messages)), map(is_not, view.messages, messages))
    return all(view.messages[place] is messages[place].untagged for place in replaced)


def _encode_changes(
    sent: SessionRequest, view: ContextView, messages: Sequence[ParsedMessage], new: Sequence[tuple[Any, int | None]]
) -> UpstreamRequest:
    """Encode the request of a view that changes something; runs in any thread."""
    raws = sent.session.encoder.encode_messages(view.messages, messages, new)
    body = sent.body.render_changes(messages=raws, fields=_encode_fields(sent, view))
    return UpstreamRequest(body, is_edited=True, betas=view.betas, offers_recall=view.offered)


def _encode_fields(sent: SessionRequest, view: ContextView) -> dict[str, bytes]:
    """Encode the fields that change beside the messages."""
    changed: dict[str, bytes] = {}
    for name, value in view.extra.items():
        raw = sent.body.get_raw_field(name) or b"null"
        changed[name] = patch_json(raw, sent.body.get_field(name), value)
    if view.sent.defers_tools:
        changed["tools"] = patch_json(
            sent.body.get_raw_field("tools") or b"[]", sent.body.get_field("tools"), view.tools
        )
    elif view.added_tools:
        own = [msgspec.json.encode(tool) for tool in view.added_tools]
        changed["tools"] = append_elements(sent.body.get_raw_field("tools"), own)
    return changed


def _add_betas(headers: Headers, betas: Sequence[str]) -> Headers:
    values = ",".join(value.decode("latin-1") for name, value in headers if name.lower() == b"anthropic-beta")
    for beta in betas:
        values = add_beta(values, beta)
    others = [pair for pair in headers if pair[0].lower() != b"anthropic-beta"]
    return [*others, (b"anthropic-beta", values.encode("latin-1"))]
