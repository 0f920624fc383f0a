"""Views as bytes: the client's messages in its very own, ours written once, whatever the views before were."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from elision.gateway.request_body import MessageEncoder
from elision.providers.live.client_messages import ParsedMessage, convert_to_json, parse_message
from elision.providers.provider_table import PROVIDERS

#: What happens before a view: messages come, some are hidden, the newest is said in other bytes, some are forgotten.
STEPS = some.lists(
    some.tuples(some.sampled_from(["come", "hide", "respell", "forget", "join"]), some.integers(0, 5)), max_size=20
)


class Told:
    """A conversation and its view, as a client, the library and the gateway have them."""

    def __init__(self) -> None:
        self.said: list[ParsedMessage] = []
        self.view: list[Any] = []
        self.number = 0
        self.come(2)

    def come(self, count: int) -> None:
        for _ in range(count + 1):
            self.number += 1
            message = {"role": "user", "content": f"message {self.number}"}
            self.said.append(make_message(message, json.dumps(message, indent=self.number % 3).encode()))
            self.view.append(self.said[-1])

    def hide(self, place: int) -> None:
        at = place % len(self.view)
        self.view[at] = {**convert_to_json(self.view[at]), "content": f"[hidden {self.number}]"}

    def respell(self, _: int) -> None:
        if self.view[-1] is self.said[-1]:
            message = dict(self.said[-1].json)
            self.said[-1] = make_message(message, json.dumps(message, separators=(" ,", " : ")).encode())
            self.view[-1] = self.said[-1]

    def forget(self, count: int) -> None:
        most = min(len(self.view), len(self.said)) - 1
        if count := min(count, most):
            del self.view[-count:], self.said[-count:]

    def join(self, count: int) -> None:
        if len(self.view) > count + 1:
            self.view[: count + 1] = [{"role": "user", "content": f"a summary {self.number}"}]


def make_message(message: dict[str, Any], raw: bytes) -> ParsedMessage:
    return parse_message(PROVIDERS["openai"].live, message, 0, raw)[0]


@given(STEPS)
def test_a_view_is_the_clients_bytes_and_ours_as_they_were_first_written(steps: list[tuple[str, int]]) -> None:
    """Whatever of a view is the client's has its bytes; what is ours says what the view says, in the bytes it had."""
    told, sent = Told(), MessageEncoder()
    ours: dict[int, tuple[Any, bytes]] = {}
    for name, number in [("come", 0), *steps]:
        getattr(told, name)(number)
        new = sent.list_new(told.view, told.said)
        out = sent.encode_messages(list(told.view), list(told.said), new)
        raws = {id(each): each.raw for each in told.said}
        assert len(out) == len(told.view)
        for message, raw in zip(told.view, out, strict=True):
            assert json.loads(raw) == convert_to_json(message)
            assert raw == raws.get(id(message), ours.setdefault(id(message), (message, raw))[1])
