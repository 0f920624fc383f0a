"""`logs`: a chain of needles. Each log names the values to join and the next log; a script takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from elision.testing.loop.task_plan import Knobs, TaskFact
from elision.testing.loop.world import Call, Find, ShellSkill, ShellWorld, run_in_shell

#: Takes the values of a step, in order. Where a step is checked, `.keys` has its pairs.
_SCRIPT = r"""
touch answers.txt
mapfile -t done < answers.txt
if [[ -z $1 ]]; then
    [[ ${#done[@]} == 0 ]] && echo "no step is done" || echo "step ${#done[@]} accepted"
    exit
fi
number=$1; shift
[[ $number == $((${#done[@]} + 1)) ]] || { echo "error: step $((${#done[@]} + 1)) is open"; exit 1; }
if [[ -f .keys/$number ]]; then
    read -r -a pairs < .keys/$number
    for pair in "${pairs[@]}"; do
        [[ " $* " == *" $pair "* ]] || { echo "step $number rejected: ${pair%%=*} is not right"; exit 1; }
    done
fi
echo "$number $*" >> answers.txt
echo "step $number accepted"
"""


class LogsSkill(ShellSkill):
    status = "bash record.sh"
    read = re.compile(r"^(?:cat|grep) .*logs/(node-\d+\.log)")
    written = re.compile(r"(svc-\d{3}[a-d])=([0-9a-f]{6})\b")
    facts = re.compile(r"(svc-\d{3}[a-d]) lease holder=([0-9a-f]{6})\b")
    value = re.compile(r"\b[0-9a-f]{6}\b")

    def open_step(self, number: int, find: Find) -> Call:
        found = find(
            r"first file is (node-\d+\.log)" if number == 1 else rf"step {number - 1}: need .*next (node-\d+\.log)"
        )
        if found:
            return run_in_shell(f"cat logs/{found[1]}")
        return run_in_shell(f'cat "$(grep -l "step {number}: need" logs/*)"')

    def fetch(self, document: str, label: str) -> Call:
        return run_in_shell(f"grep '{label} ' logs/{document}" if label else f"cat logs/{document}")

    def apply(self, number: int, values: Mapping[str, str], find: Find) -> Call:
        return run_in_shell(f"bash record.sh {number} {' '.join(f'{each}={value}' for each, value in values.items())}")


class LogsWorld(ShellWorld):
    name = "logs"
    calls_per_step = 2.0
    skill = LogsSkill()
    system = (
        "You are on call for a fleet of services. You have a shell in a folder with the logs of its nodes in `logs`. "
        "Work exactly: a lease that is given to a wrong holder takes its service down."
    )

    def __init__(self, seed: int, knobs: Knobs, folder: Path) -> None:
        self._numbers: list[int] = []
        super().__init__(seed, knobs, folder)

    def make_document(self, number: int) -> Sequence[TaskFact]:
        # The chain leaps from node to node: no file can be guessed from the one before.
        if not self._numbers:
            self._numbers = list(range(1000))
            self.chance.shuffle(self._numbers)
        node = self._numbers[number]
        draw = self.chance.randrange
        lines = [
            f"{draw(24):02}:{draw(60):02}:{draw(60):02} {self.chance.choice(('INFO', 'DEBUG', 'WARN'))} "
            f"{self.pick_word()}-"
            f"{draw(900)} {self.pick_word()} took {draw(9000)} ms req={draw(16**8):08x}"
            for _ in range(self.draw_lines())
        ]
        facts = []
        for letter in "abcd":
            label, holder = f"svc-{node:03}{letter}", f"{draw(16**6):06x}"
            facts.append(TaskFact(label=label, document=f"node-{node:03}.log", value=holder))
            lines.insert(draw(len(lines)), f"12:{draw(60):02}:07 WARN {label} lease holder={holder} ttl={draw(900)}")
        self.write_file(f"logs/node-{node:03}.log", "\n".join(lines) + "\n")
        return facts

    def write_steps(self) -> None:
        for number, labels in enumerate(self.needs, start=1):
            name = f"logs/node-{self._numbers[number - 1]:03}.log"
            after = f"next node-{self._numbers[number]:03}.log" if number < len(self.needs) else "the last one"
            lines = (self.folder / name).read_text(encoding="utf-8").splitlines()
            notice = f"12:59:59 NOTICE step {number}: need {self.describe_needs(labels)}; {after}"
            lines.insert(self.chance.randrange(len(lines)), notice)
            self.write_file(name, "\n".join(lines) + "\n")
            if self.is_checked(number):
                pairs = " ".join(f"{label}={self.find_value(label)}" for label in labels)
                self.write_file(f".keys/{number}", pairs + "\n")
        self.write_file("record.sh", _SCRIPT)

    @property
    def task(self) -> str:
        return (
            f"Follow the chain of {len(self.needs)} steps through the logs. A line `step N: need …` names the services "
            "whose lease holders belong together, and the next file. Hand each step in with "
            "`bash record.sh N SERVICE=HOLDER …`; without arguments it says what is done. "
            f"The first file is node-{self._numbers[0]:03}.log. {self.ask_for_report()}"
        )

    def count_wrong_steps(self) -> int:
        return self.count_wrong_lines("answers.txt", "=")
