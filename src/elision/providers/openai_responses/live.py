"""OpenAI Responses items, live: every item is one piece; adjacent output items are one turn.

A hosted tool whose item holds call and result at once stays as it is: nothing of it could be hidden alone.
"""

from __future__ import annotations

from typing import Any

from elision.providers.live.pieces import LiveDialect, Location, Piece, read_plain_message
from elision.providers.openai_responses import parse as openai_responses
from elision.providers.openai_responses.parse import OUTPUTS
from elision.providers.shared.json_reading import Json, text_in

#: Item types that are the client's though they are no message and no result.
_CLIENTS = frozenset(("mcp_approval_response", "item_reference", "compaction_trigger"))
#: Those that set what holds from there on.
_SETTINGS = frozenset(("additional_tools", "configuration_update"))


class LiveOpenAIResponses(LiveDialect):
    """`input` of the Responses API, as a list of items."""

    name = "openai-responses"
    joins_assistant_messages = True

    def split_message(self, message: Json, index: int) -> list[Piece]:
        kind = text_in(message.get("type")) or "message"
        role = text_in(message.get("role"))
        spot = Location(index)
        if kind in OUTPUTS:
            return [Piece(kind="result", location=spot, result=openai_responses.parse_result(message))]
        is_setting = kind in _SETTINGS or (kind != "message" and role in ("system", "developer"))
        if is_setting or kind in _CLIENTS:
            return [
                Piece(
                    kind="user", location=spot, words=openai_responses.parse_item(message).content, is_pinned=is_setting
                )
            ]
        if kind != "message" or role == "assistant":
            said = openai_responses.parse_item(message)
            return [Piece(kind="assistant", location=spot, assistant=said, is_silent=kind == "reasoning")]
        return read_plain_message(message, spot)

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        if text_in(part.get("type")) in OUTPUTS:
            return openai_responses.replace_output(part, text)
        # Of a text protocol, results are the user's messages.
        return {**part, "content": text}
