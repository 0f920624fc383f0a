"""A request that a live session serves, as one value: what every step of its handling needs to know."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from elision.gateway.live_sessions import LiveSession
from elision.gateway.request_body import RequestBody
from elision.gateway.request_record import RequestRecord
from elision.gateway.wire import ClientRequest
from elision.providers.live.conversation import Conversation
from elision.providers.live.parsed_message import ParsedMessage
from elision.providers.provider import Api

_log: Final = logging.getLogger("elision.gateway")


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One request of a client to a session.

    body:         the parsed body of `client`, with the tools that the session keeps. conversation: its messages; the
                  session's may be longer by now.
    client:       the request as it arrived. record: filled in while the request is served.
    """

    session: LiveSession
    api: Api
    url: str
    body: RequestBody
    conversation: Conversation
    client: ClientRequest
    record: RequestRecord

    def is_client_conversation(self, messages: Sequence[ParsedMessage]) -> bool:
        """Return whether the client saw all of these messages."""
        return len(messages) == len(self.body.messages) and not self.session.hidden_rounds.events_by_node

    def log_fault(self, what: str, error: Exception, then: str = "the request is sent unchanged") -> None:
        """Log and record that something of ours failed, which does not fail the request (I9)."""
        self.record.cause = what
        self.record.why = type(error).__name__
        _log.error("session %s: %s failed, %s", self.session.name, what, then, exc_info=error)
