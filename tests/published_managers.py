"""The managers as the published descriptions of the strategies write them, word for word: what tests compare with.

Names, prompts and quirks are theirs. Only types, `time` and the parts that they leave open are added.
"""

from __future__ import annotations

from typing import Any


def apply_observation_masking(trajectory: Any, current_turn: int, window_size_m: int) -> list[Any]:
    """Observation masking, "Algorithm"."""
    masked_trajectory = []
    for turn_idx, (reasoning, action, observation) in enumerate(trajectory):
        # Keep system and user prompts always visible
        if turn_idx < 2:  # sys_prompt, user_prompt
            masked_trajectory.append((reasoning, action, observation))
            continue
        # Calculate if this turn should be masked
        turns_ago = current_turn - turn_idx
        if turns_ago > window_size_m:
            # Mask the observation
            masked_observation = f"[Turn {turn_idx} observation omitted for brevity]"
            masked_trajectory.append((reasoning, action, masked_observation))
        else:
            # Keep fully visible
            masked_trajectory.append((reasoning, action, observation))
    return masked_trajectory


def mask_observations(turns: Any, current_turn: int, m: int = 10) -> list[Any]:
    """Observation masking, "Core masking logic is just a few lines"."""
    return [(r, a, "[omitted]" if i < current_turn - m else o) for i, (r, a, o) in enumerate(turns)]


class ObservationMaskingContextManager:
    """Observation masking, "Code Example: Full Implementation"; turns are counted from 1."""

    def __init__(self, window_size_m: int = 10, placeholder: str = "") -> None:
        self.m = window_size_m
        self.placeholder = placeholder or "[Observation omitted for brevity]"
        self.trajectory: list[dict[str, Any]] = []

    def add_turn(self, reasoning: str, action: str, observation: str) -> None:
        self.trajectory.append(
            {
                "turn": len(self.trajectory) + 1,
                "reasoning": reasoning,
                "action": action,
                "observation": observation,
            }
        )

    def get_masked_context(self, system_prompt: str, user_prompt: str) -> str:
        context_parts = [system_prompt, user_prompt]
        current_turn = len(self.trajectory)
        for turn_data in self.trajectory:
            turn_num = turn_data["turn"]
            turns_ago = current_turn - turn_num
            # Always show reasoning and action
            reasoning = turn_data["reasoning"]
            action = turn_data["action"]
            # Mask observation if older than window
            if turns_ago > self.m:
                observation = self.placeholder
            else:
                observation = turn_data["observation"]
            context_parts.append(f"""
Turn {turn_num}:
Reasoning: {reasoning}
Action: {action}
Observation: {observation}
""")
        return "\n".join(context_parts)

    def estimate_token_savings(self) -> dict[str, Any]:
        total_obs_tokens = sum(len(t["observation"].split()) for t in self.trajectory)
        visible_turns = min(len(self.trajectory), self.m)
        masked_turns = len(self.trajectory) - visible_turns
        # Assume masked placeholder is ~5 tokens vs ~500 for full observation
        placeholder_tokens = 5
        avg_obs_tokens = total_obs_tokens / len(self.trajectory) if self.trajectory else 0
        saved_tokens = masked_turns * (avg_obs_tokens - placeholder_tokens)
        return {
            "total_obs_tokens": total_obs_tokens,
            "masked_turns": masked_turns,
            "visible_turns": visible_turns,
            "estimated_saved_tokens": saved_tokens,
            "reduction_percent": (saved_tokens / total_obs_tokens * 100) if total_obs_tokens else 0,
        }


class LLMSummarizationContextManager:
    """LLM summarization, "Complete Implementation Example"; turns are counted from 0. write: in place of the LLM."""

    def __init__(self, write: Any, summarize_window_n: int = 21, tail_window_m: int = 10) -> None:
        self.write = write
        self.n = summarize_window_n
        self.m = tail_window_m
        self.trajectory: list[dict[str, Any]] = []
        self.summaries: list[Any] = []  # List of (turn_idx, summary)
        self.last_summary_idx = 0

    def add_turn(self, reasoning: str, action: str, observation: str) -> None:
        self.trajectory.append(
            {"turn": len(self.trajectory), "reasoning": reasoning, "action": action, "observation": observation}
        )

    def maybe_summarize(self, force: bool = False) -> str | None:
        current_turn = len(self.trajectory)
        turns_since_summary = current_turn - self.last_summary_idx
        # Check if we have enough turns
        if not force and turns_since_summary < self.n + self.m:
            return None
        # Prepare turns to summarize
        turns_to_summarize = self.trajectory[self.last_summary_idx : current_turn - self.m]
        summary: str = self.write(turns_to_summarize)
        # Store summary
        self.summaries.append((current_turn - self.m, summary))
        self.last_summary_idx = current_turn - self.m
        return summary

    def get_context(self, system_prompt: str, user_prompt: str) -> str:
        parts = [system_prompt, user_prompt]
        # Add latest summary
        if self.summaries:
            _, latest_summary = self.summaries[-1]
            parts.append(f"\n[Summary of turns {self.last_summary_idx}:\n{latest_summary}\n]")
        # Add tail turns (most recent M)
        tail_start = max(0, len(self.trajectory) - self.m)
        for turn in self.trajectory[tail_start:]:
            parts.append(f"""
Turn {turn["turn"]}:
Reasoning: {turn["reasoning"]}
Action: {turn["action"]}
Observation: {turn["observation"]}
""")
        return "\n".join(parts)


class HybridContextManager:
    """Hybrid, "Algorithm"; turns are counted from 0. write: in place of the LLM."""

    def __init__(
        self, write: Any, masking_window_w: int = 10, summarize_at_n: int = 43, tail_window_m: int = 10
    ) -> None:
        self.write = write
        self.w = masking_window_w
        self.n = summarize_at_n
        self.m = tail_window_m
        self.trajectory: list[dict[str, Any]] = []
        self.phase = "masking"  # or "summarizing"
        self.summaries: list[dict[str, Any]] = []
        self.last_summary_idx = 0

    def add_turn(self, reasoning: str, action: str, observation: str) -> None:
        self.trajectory.append(
            {"turn": len(self.trajectory), "reasoning": reasoning, "action": action, "observation": observation}
        )
        # Check if we should switch to summarization
        self._check_phase_transition()

    def _check_phase_transition(self) -> None:
        if self.phase == "masking" and len(self.trajectory) >= self.n:
            # Create first summary
            self._create_summary()
            self.phase = "summarizing"

    def _create_summary(self) -> None:
        # When summarizing from masking phase, use UNMASKED turns
        # (pass full observations to summarizer)
        turns_to_summarize = self.trajectory[self.last_summary_idx : -self.m]
        # Generate summary using full context
        summary = self.write(turns_to_summarize)
        self.summaries.append({"end_turn": len(self.trajectory) - self.m, "content": summary})
        self.last_summary_idx = len(self.trajectory) - self.m

    def get_context(self, system_prompt: str, user_prompt: str) -> str:
        if self.phase == "masking":
            # Use observation masking
            return self._get_masked_context(system_prompt, user_prompt)
        # Use summarization + masking on recent
        return self._get_summarized_context(system_prompt, user_prompt)

    def _get_masked_context(self, system_prompt: str, user_prompt: str) -> str:
        return "\n".join([system_prompt, user_prompt, *self._render_turns(self.trajectory)])

    def _get_summarized_context(self, system_prompt: str, user_prompt: str) -> str:
        parts = [system_prompt, user_prompt]
        # Add latest summary
        if self.summaries:
            latest = self.summaries[-1]
            parts.append(f"\n[Summary through turn {latest['end_turn']}:\n{latest['content']}\n]")
        # Add tail turns with masking applied
        tail_start = max(0, len(self.trajectory) - max(self.w, self.m))
        return "\n".join([*parts, *self._render_turns(self.trajectory[tail_start:])])

    def _render_turns(self, turns: list[dict[str, Any]]) -> list[str]:
        parts = []
        current_turn = len(self.trajectory)
        for turn in turns:
            turns_ago = current_turn - turn["turn"]
            # Mask old observations
            if turns_ago > self.w:
                observation = "[Observation omitted]"
            else:
                observation = turn["observation"]
            parts.append(f"""
Turn {turn["turn"]}:
Reasoning: {turn["reasoning"]}
Action: {turn["action"]}
Observation: {observation}
""")
        return parts

    def maybe_create_summary(self) -> None:
        if self.phase != "summarizing":
            return
        turns_since_summary = len(self.trajectory) - self.last_summary_idx
        # Create summary every N turns after the first
        if turns_since_summary >= self.n:
            self._create_summary()
