"""`code`: a refactoring in a repository of shell modules, with a real shell, real edits and real tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from elision.testing.loop.task_plan import TaskFact
from elision.testing.loop.world import Call, Find, ShellSkill, ShellWorld, run_in_shell

#: What the tests give to every rate.
_SAMPLE = 7
#: Runs the test of one module. Without arguments it says what is done.
_SCRIPT = r"""
touch done.txt
mapfile -t done < done.txt
if [[ -z $1 ]]; then
    [[ ${#done[@]} == 0 ]] && echo "no step is done" || echo "step ${#done[@]} accepted"
    exit
fi
printf -v name %03d "$1"
[[ $1 -le $((${#done[@]} + 1)) ]] || { echo "error: step $((${#done[@]} + 1)) is open"; exit 1; }
source shop/mod_$name.sh
if [[ $(declare -f total_$name) == *'$(rate_'* ]]; then
    echo "total_$name still calls a rate"; exit 1
fi
total_$name 7 > /dev/null
if [[ -f tests/$name.txt ]]; then
    while read -r label expected; do
        variable=v_$label
        if [[ ${!variable} != "$expected" ]]; then
            echo "FAIL total_$name 7: $label gives ${!variable}, expected $expected"
            echo "step $1 rejected: $label is not right"; exit 1
        fi
    done < tests/$name.txt
    echo "ok total_$name 7"
fi
[[ $1 -gt ${#done[@]} ]] && echo "$1" >> done.txt
echo "step $1 accepted"
"""


class CodeSkill(ShellSkill):
    status = "bash run_tests.sh"
    read = re.compile(r"^(?:cat|grep -A1 \S+) (shop/mod_\d+\.sh|issues/\d+\.md)")
    written = re.compile(r"v_(rate_\d{3}[a-d])=\$\(\( \$1 (\* \d+ \+ \d+) \)\)")
    facts = re.compile(r"\b(rate_\d{3}[a-d])\(\) \{\s*(?:\d+[:\t-]\s*|-\s*)?echo \$\(\( \$1 (\* \d+ \+ \d+) \)\)")
    value = re.compile(r"\* \d+ \+ \d+")

    def open_step(self, number: int, find: Find) -> Call:
        return run_in_shell(f"cat issues/{number:03}.md")

    def fetch(self, document: str, label: str) -> Call:
        return run_in_shell(f"grep -A1 '^{label}()' {document}" if label else f"cat {document}")

    def apply(self, number: int, values: Mapping[str, str], find: Find) -> Call:
        edits = " ".join(f"-e 's/v_{each}=.*/v_{each}=$(( $1 {value} ))/'" for each, value in values.items())
        return run_in_shell(f"sed -i {edits} shop/mod_{number:03}.sh && bash run_tests.sh {number}")

    def look(self, number: int) -> Call | None:
        return run_in_shell(f"cat -n shop/mod_{number:03}.sh | tail -40")

    def make_recall_pattern(self, label: str) -> str:
        return rf"{label}\(\)"


class CodeWorld(ShellWorld):
    name = "code"
    calls_per_step = 3.0
    skill = CodeSkill()
    system = (
        "You are a careful programmer with a shell in a repository. `shop` has its modules, `issues` what is to be "
        "done, "
        "`bash run_tests.sh N` runs the test of issue N. Not everything is tested, so copy exactly."
    )

    def make_document(self, number: int) -> Sequence[TaskFact]:
        draw = self.chance.randrange
        blocks = []
        for _ in range(self.draw_lines() // 4):
            name = f"{self.pick_word()}_{self.pick_word()}_{draw(100)}"
            blocks.append(
                f"# Scales the {self.pick_word()} of a {self.pick_word()}.\n{name}() {{\n"
                f"    local x=$1 y=${{2:-{draw(100)}}}\n    echo $(( (x * {draw(1000)} + y) / {draw(2, 99)} ))\n}}\n"
            )
        facts = []
        for letter in "abcd":
            label, value = f"rate_{number + 1:03}{letter}", f"* {draw(10, 9000)} + {draw(9000)}"
            facts.append(TaskFact(label=label, document=f"shop/mod_{number + 1:03}.sh", value=value))
            blocks.insert(draw(len(blocks) + 1), f"{label}() {{\n    echo $(( $1 {value} ))\n}}\n")
        self.write_file(f"shop/mod_{number + 1:03}.sh", "\n".join(blocks))
        return facts

    def write_steps(self) -> None:
        for number, labels in enumerate(self.needs, start=1):
            variables = "\n".join(f'    v_{label}=$({label} "$1")' for label in labels)
            total = " + ".join(f"v_{label}" for label in labels)
            with (self.folder / f"shop/mod_{number:03}.sh").open("a", encoding="utf-8") as module:
                module.write(f"\ntotal_{number:03}() {{\n{variables}\n    echo $(( {total} ))\n}}\n")
            self.write_file(
                f"issues/{number:03}.md",
                f"# {number}: total_{number:03} calls rates of other modules\n\nPut their formulas in place of the "
                f"calls.\n"
                f"step {number}: need {self.describe_needs(labels)}\n",
            )
            if self.is_checked(number):
                expected = "".join(f"{label} {self._compute(label)}\n" for label in labels)
                self.write_file(f"tests/{number:03}.txt", expected)
        self.write_file("run_tests.sh", _SCRIPT)

    def _compute(self, label: str) -> int:
        factor, summand = map(int, re.findall(r"\d+", self.find_value(label)))
        return _SAMPLE * factor + summand

    @property
    def task(self) -> str:
        return (
            f"Close the {len(self.needs)} issues in `issues` in order. Each names rates whose formula is to stand in a "
            "module's total, in place of the call. Edit with sed, then run the test of the issue. Without a number "
            f"`bash run_tests.sh` says what is done. {self.ask_for_report()}"
        )

    def count_wrong_steps(self) -> int:
        lines = []
        for number, labels in enumerate(self.needs, start=1):
            shown = " ".join(f"$v_{label}" for label in labels)
            lines.append(f"(source shop/mod_{number:03}.sh; total_{number:03} {_SAMPLE} >/dev/null 2>&1; echo {shown})")
        found = self.run_script("\n".join(lines)).splitlines()
        expected = [" ".join(str(self._compute(label)) for label in labels) for labels in self.needs]
        return sum(line != right for line, right in zip(found, expected, strict=True))
