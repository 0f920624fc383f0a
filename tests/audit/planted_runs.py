"""Runs with causes planted at random places, and what each of them costs, worked out block by block."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field

from elision.audit.cause_table import Cause
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Compaction, Trajectory
from elision.trajectory.turn import Action, Head, Message, Observation, Turn, make_content
from elision.trajectory.usage import Usage

RATES = Rates(input=5, output=25, cache_write=6.25, cache_read=0.5, cache_write_1h=10)
PRICES = Prices(name="planted", tiers=((0, RATES),), cache=CacheRules(kind="breakpoints", minimum=0))
SIZER = Sizer(make_counter("estimate"))
#: Seconds between two calls where nothing is planted.
STEP = 20.0


@dataclass(frozen=True)
class Block:
    """One piece of the prompt. original: number of the block whose text it repeats, 0 for none. dead: never used."""

    number: int
    tokens: int
    turn: int = 0
    original: int = 0
    dead: bool = False
    unused: bool = False


@dataclass
class PlantedRun:
    """A session that is billed as Anthropic would, with a breakpoint after its newest message."""

    seed: int
    calls: int = 40
    hour: bool = False
    expected: Counter[Cause] = field(default_factory=Counter)
    planted: Counter[Cause] = field(default_factory=Counter)

    def build(self) -> Trajectory:
        self._random = random.Random(self.seed)
        self._number = 0
        self._live: list[str] = []
        self._pending: list[bool] = []
        self._results: list[tuple[Block, str]] = []
        head, blocks = self._make_head()
        front = len(blocks)
        turns: list[Turn] = []
        compactions: list[Compaction] = []
        now, cached, last = 1_780_000_000.0, 0, 0
        for call in range(1, self.calls + 1):
            event = self._choose_event(call)
            now += {"expired-5m": 900.0, "expired-1h": 7_200.0, "pause": 1_800.0}.get(event, STEP)
            if event == "compaction":
                summary = self._write_text(30)
                compactions.append(Compaction(before=call, summary=summary))
                kept = [block for block in blocks[front:] if block.turn >= call - 3]
                blocks = [*blocks[:front], self._make_block(SIZER.count_text(summary)), *kept]
            read = self._count_read(event, blocks, front, cached)
            prompt = sum(block.tokens for block in blocks)
            output = 100 + self._random.randrange(200)
            self._bill(call, event, blocks, read, last)
            self._bill_premium(event == "pause", read, prompt)
            self.expected["answer"] += output * RATES.output
            written = prompt - read
            usage = Usage(
                cache_read=read, cache_write=written, cache_write_1h=written if self.hour else 0, output=output
            )
            turn, added = self._make_turn(call, usage, now)
            turns.append(turn)
            cached = last = prompt
            blocks = [*blocks, *added]
        self.expected["hour-unpaid"] += sum(self._pending) * (RATES.write_price_1h - RATES.write_price)
        self.expected = Counter({cause: usd / 1e6 for cause, usd in self.expected.items()})
        return Trajectory(
            id=f"planted-{self.seed}", head=head, turns=tuple(turns), model="planted", compactions=tuple(compactions)
        )

    def _choose_event(self, call: int) -> str:
        if call < 6 or self._random.random() > 0.25:
            return ""
        choices = ["prefix-changed", "compaction", "expired-1h" if self.hour else "expired-5m"]
        if self.hour:
            choices.append("pause")
        event = self._random.choice(choices)
        self.planted[event] += 1  # type: ignore[index]
        return event

    def _count_read(self, event: str, blocks: list[Block], front: int, cached: int) -> int:
        ends = [sum(block.tokens for block in blocks[: place + 1]) for place in range(len(blocks))]
        if event in ("expired-5m", "expired-1h"):
            return 0
        if event == "compaction":
            return ends[front - 1]
        if event == "prefix-changed":
            return self._random.choice([0, *(end for end in ends if end < cached - 300)])
        return cached

    def _bill(self, call: int, event: str, blocks: list[Block], read: int, last: int) -> None:
        """Add what each block of the prompt costs to the cause that was planted there."""
        shown: set[int] = set()
        place = 0
        for block in blocks:
            content = self._name_content(block, call, shown)
            shown.add(block.original or block.number)
            end = place + block.tokens
            kept = max(0, min(end, read) - place)
            lost = max(0, min(end, last) - place - kept)
            if event == "compaction":
                lost = block.tokens - kept
            fresh = block.tokens - kept - lost
            self.expected[content or "context"] += kept * RATES.read_price
            self.expected[event or "growth"] += lost * RATES.write_price  # type: ignore[index]
            self.expected[content or ("growth" if call > 1 else "first-write")] += fresh * RATES.write_price
            place = end

    def _name_content(self, block: Block, call: int, shown: set[int]) -> Cause | None:
        if block.unused:
            return "unused-tools"
        if block.original in shown:
            return "repeat"
        if block.dead and call > block.turn + 1:
            return "dead-output"
        return None

    def _bill_premium(self, pause: bool, read: int, prompt: int) -> None:
        if not self.hour:
            return
        premium = RATES.write_price_1h - RATES.write_price
        self.expected["hour-unpaid"] += sum(self._pending[read:]) * premium
        self._pending = self._pending[:read]
        if pause:
            self.expected["hour-paid"] += sum(self._pending) * premium
            self._pending = [False] * len(self._pending)
        self._pending += [True] * (prompt - read)

    def _make_block(self, tokens: int, **options: object) -> Block:
        self._number += 1
        return Block(self._number, tokens, **options)  # type: ignore[arg-type]

    def _make_head(self) -> tuple[Head, list[Block]]:
        tools = tuple(
            {"name": name, "description": self._write_text(self._random.randrange(20, 60)), "input_schema": {}}
            for name in ("unused_one", "unused_two", "bash")
        )
        messages = tuple(
            Message(role=role, content=make_content(self._write_text(40)))  # type: ignore[arg-type]
            for role in ("system", "user")
        )
        head = Head(tools=tools, messages=messages)
        every = SIZER.count_tools(head)
        unused = len(json.dumps(tools[:2])) * every // len(json.dumps(tools))
        blocks = [self._make_block(unused, unused=True), self._make_block(every - unused)]
        blocks += [self._make_block(SIZER.count_message(message)) for message in messages]
        return head, blocks

    def _make_turn(self, call: int, usage: Usage, now: float) -> tuple[Turn, list[Block]]:
        kind = self._random.choice(("live", "live", "dead", "repeat"))
        original = 0
        dead = kind == "dead"
        if kind == "repeat" and self._results:
            block, text = self._random.choice(self._results)
            original, dead = block.number, block.dead
        else:
            dead = kind == "dead"
            text = self._write_text(self._random.randrange(40, 200))
            if not dead:
                self._live.append(f"live_item_{call}")
                text += f"\n{self._live[-1]} is what matters in this one\n"
        action = Action(id=f"c{call}", name="bash", arguments=json.dumps({"command": self._write_text(2)}))
        result = Observation(action_id=action.id, tool="bash", content=make_content(text))
        said = " ".join(self._live) if call == self.calls else self._write_text(3)
        turn = Turn(
            index=call,
            content=make_content(said),
            actions=(action,),
            observations=(result,),
            usage=usage,
            at=now,
            model="planted",
        )
        spoken = self._make_block(SIZER.count_assistant(turn), turn=call)
        answered = self._make_block(SIZER.count_observation(result), turn=call, original=original, dead=dead)
        if not original:
            self._results.append((answered, text))
        return turn, [spoken, answered]

    def _write_text(self, lines: int) -> str:
        """Write lines of plain words, none of which is an item that a step could use."""
        words = ["".join(self._random.choices("abcdefghijklmnop", k=7)) for _ in range(6 * lines)]
        return "\n".join(" ".join(words[6 * line : 6 * line + 6]) for line in range(lines))
