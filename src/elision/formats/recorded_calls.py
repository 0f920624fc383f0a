"""Read a recorded tool call, whatever its fields are called."""

from __future__ import annotations

from elision.providers.shared.json_reading import Json, dump_arguments, text_in
from elision.trajectory.turn import Action


def read_call(call: Json, *, id: str = "id", name: str = "name", arguments: str = "arguments") -> Action:
    """Return the action of `call`. id, name, arguments: its fields."""
    return Action(id=text_in(call.get(id)), name=text_in(call.get(name)), arguments=dump_arguments(call.get(arguments)))
