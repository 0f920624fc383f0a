"""Asking again: a model that gave no answer is asked a bounded number of times, later each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from elision.agent.model import Answer, Model, ModelError, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """tries: requests for one answer, 1 or more. first: seconds before the second, doubled each time; longest: at most.

    What the server asks for counts where it is longer; a server that asks for more than `longest` is not waited for.
    """

    tries: int = 5
    first: float = 1.0
    longest: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def ask(self, model: Model, prompt: Prompt) -> Answer:
        """The model's answer. Raises the last ModelError; one that no waiting mends at once."""
        wait = self.first
        for _ in range(self.tries - 1):
            try:
                return model.answer(prompt)
            except ModelError as error:
                if not error.passing or (error.wait or 0.0) > self.longest:
                    raise
                self.sleep(min(self.longest, max(wait, error.wait or 0.0)))
                wait *= 2
        return model.answer(prompt)
