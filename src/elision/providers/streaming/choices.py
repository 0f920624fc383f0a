"""Responses that offer several answers, in chat "choices" and at Gemini "candidates": the one with index 0 is read.

The others pass unchanged in the first round, and are dropped in later ones.
"""

from __future__ import annotations

from typing import ClassVar

from elision.providers.shared.json_reading import int_in, mappings_in
from elision.providers.streaming.rounds import Json
from elision.providers.streaming.streamed_response import StreamedResponse


def find_first_choice(body: Json, field: str) -> Json | None:
    """Return the choice with index 0, which may leave its index out."""
    return next((choice for choice in mappings_in(body.get(field)) if not int_in(choice.get("index"))), None)


def list_other_choices(body: Json, field: str) -> list[Json]:
    """Return the choices with other indexes."""
    return [choice for choice in mappings_in(body.get(field)) if int_in(choice.get("index"))]


class ChoiceStream(StreamedResponse):
    """A stream of chunks, each of which has such a list."""

    choices_field: ClassVar[str]
    #: Field of a choice that says why it ended, and what it says of a model that stopped by itself.
    finish_field: ClassVar[str]
    stopped: ClassVar[str]

    def may_pass_held(self, event: Json) -> bool:
        is_read = find_first_choice(event, self.choices_field) is not None
        return not self.is_later_round and not is_read and bool(list_other_choices(event, self.choices_field))

    def is_error(self, event: Json) -> bool:
        return bool(event.get("error"))

    def mark_stopped(self, event: Json) -> Json:
        choices = mappings_in(event.get(self.choices_field))
        return {**event, self.choices_field: [{**choice, self.finish_field: self.stopped} for choice in choices]}
