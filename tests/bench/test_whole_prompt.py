"""The whole bill by default: targets, and causes before and after."""

from __future__ import annotations

import pytest
from benchmarks import whole_prompt
from benchmarks.whole_prompt import Outcome, Sent, add_up, main, measure_total, print_targets, replay_ratios

from elision.audit.cause_table import CAUSES
from elision.testing import builders
from elision.trajectory.trajectory import Trajectory

RUN = builders.trajectory(*(builders.step(turn, "a line of the result\n" * 400) for turn in range(1, 61)))


def outcome(calls: int, recorded: float, default: float) -> Outcome:
    return Outcome(calls, Sent(recorded), Sent(default))


def test_the_causes_sum_to_the_bill() -> None:
    """As recorded and by default, at the ratio where they are told; what is hidden is not there to be repeated."""
    found = replay_ratios(RUN)
    assert found.keys() == whole_prompt.PRICES.keys()
    flagship = found[whole_prompt.FLAGSHIP]
    for sent in (flagship.recorded, flagship.default):
        assert sum(sent.parts.get(cause, 0.0) for cause in CAUSES) == pytest.approx(sent.usd)
    assert flagship.default.usd < flagship.recorded.usd
    assert flagship.default.parts.get("repeat", 0.0) < flagship.recorded.parts["repeat"]
    assert not found["0.1"].recorded.parts


def test_targets_are_of_long_runs_and_of_short_ones(capsys: pytest.CaptureFixture[str]) -> None:
    print_targets([outcome(40, 1.0, 0.7), outcome(90, 3.0, 2.4), outcome(39, 1.0, 1.05)])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [
        "median of 40 calls or more 0.750 target 0.88: met",
        "total of 40 calls or more 0.775 target 0.82: met",
        "worst of 40 calls or more 0.800 target 1.02: met",
        "median under 40 calls 1.050 target 0.94: missed",
        "worst under 40 calls 1.050 target 1.02: missed",
    ]


def test_what_is_added_up() -> None:
    total = add_up([Sent(1.0, {"repeat": 0.5}), Sent(2.0, {"repeat": 0.25, "answer": 1.0})])
    assert total == Sent(3.0, {"repeat": 0.75, "answer": 1.0})
    assert measure_total([outcome(40, 1.0, 0.5), outcome(50, 3.0, 3.0)]) == 0.875


def test_a_run_without_turns_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def load(*, small: bool) -> tuple[Trajectory, ...]:
        return (builders.trajectory(), RUN)

    monkeypatch.setattr(whole_prompt, "load_recordings", load)
    main(small=True)
    printed = capsys.readouterr().out
    assert "The default / as recorded, 1 runs" in printed
    assert " all                                         100.0" in printed
