"""What the agent says of its own."""

from __future__ import annotations

from typing import Final

from elision.agent.environment import ActionResult

#: The system prompt, where the user gives none.
SYSTEM_PROMPT: Final = (
    "You work on a task with the tools you are given, one step at a time. Look before you change anything, check what "
    "you changed, and say briefly what you are about to do. When the task is done, hand in the result."
)
#: Said to a model that ran into its limit of output without calling a tool.
CONTINUE_PROMPT: Final = "Your answer was cut off at its limit. Go on, in smaller steps."
#: What a call gets that was under way when the user stopped the run.
INTERRUPTED_RESULT: Final = ActionResult(text="[interrupted by the user]", error=True)
