"""Asking again: a model that gave no answer is asked a bounded number of times, later each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from elision.agent.model import Model, ModelAnswer, ModelError, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a model is asked for one answer, and how long is waited between requests.

    tries: requests for one answer, 1 or more. first_seconds: before the second request, doubled each time.
    longest_seconds: the longest wait. A longer wait that the server asks for counts, up to `longest_seconds`; where it
    asks for more, the request is not repeated.
    """

    tries: int = 5
    first_seconds: float = 1.0
    longest_seconds: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def ask_model(self, model: Model, prompt: Prompt) -> ModelAnswer:
        """The model's answer. Raises the last ModelError; one that no waiting mends at once."""
        wait = self.first_seconds
        for _ in range(self.tries - 1):
            try:
                return model.answer(prompt)
            except ModelError as error:
                if not error.is_temporary or (error.wait_seconds or 0.0) > self.longest_seconds:
                    raise
                self.sleep(min(self.longest_seconds, max(wait, error.wait_seconds or 0.0)))
                wait *= 2
        return model.answer(prompt)
