"""Write the table of `docs/frameworks/overview.md`: plays the contract suite with every framework that is installed.

    python docs/update_contract.py

It takes the environments of `make adapters`, `make crewai` and `make openhands`, and ten minutes or more. A framework
that is not installed keeps no row: install all of them first.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.adapters.environments import ENVIRONMENTS, find_python  # noqa: E402

PAGE = ROOT / "docs" / "frameworks" / "overview.md"
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->"
HEAD = "| framework | scenarios that pass | not available |\n|---|---|---|\n"
#: Each scenario, and the tests of `AdapterContract` that it stands for.
SCENARIOS = {
    "30 turns": ["test_thirty_turns[plain]"],
    "async": ["test_thirty_turns[async]"],
    "streamed": ["test_thirty_turns[streamed]"],
    "parallel": ["test_parallel_calls"],
    "errors": ["test_failed_results"],
    "images": ["test_pictures"],
    "resumed": ["test_resumed_in_another_process"],
    "forked": ["test_forked"],
    "two at once": ["test_two_at_once"],
    "sub-agents": ["test_sub_agents"],
    "overflow": ["test_overflow"],
    "summary": ["test_summary"],
    "model switch": ["test_model_switch"],
    "our fault": ["test_our_fault[engine_fault]", "test_our_fault[prepare_fault]"],
    "bound thinking": ["test_bound_thinking"],
}


def run_contract(report: Path) -> None:
    """Play the contract of all adapters; the outcome of each test is in the file `report` then."""
    files = [str(path) for path in (ROOT / "tests" / "adapters" / f"test_{host}.py" for host in ENVIRONMENTS)]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", f"--junit-xml={report}", *files]
    subprocess.run(command, cwd=ROOT, check=False)


def read_outcomes(report: Path) -> dict[str, dict[str, str]]:
    """Return by host, then by test: "yes", "" where it was not tried, or "FAILS"."""
    outcomes: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        host = case.attrib["classname"].split(".")[2].removeprefix("test_")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = "FAILS"
        elif case.find("skipped") is not None:
            outcome = ""
        else:
            outcome = "yes"
        outcomes[host][case.attrib["name"]] = outcome
    return outcomes


def format_row(framework: str, outcomes: Mapping[str, str]) -> str:
    """Return the row of a framework, which has a name and a version."""
    results = {scenario: [outcomes.get(name, "") for name in tests] for scenario, tests in SCENARIOS.items()}
    failed = [f"**{scenario} fails**" for scenario, found in results.items() if "FAILS" in found]
    passed = [scenario for scenario, found in results.items() if all(each == "yes" for each in found)]
    missing = [scenario for scenario, found in results.items() if "FAILS" not in found and scenario not in passed]
    number = f"all {len(passed)}" if len(passed) == len(SCENARIOS) else str(len(passed))
    return f"| {framework} | {number} | {', '.join([*failed, *missing])} |"


def find_version(host: str) -> str:
    """Return the framework's distributions with their versions, as its environment has them."""
    code = (
        "import sys; from importlib import import_module, metadata; "
        f"names = import_module('tests.adapters.hosts.{host}'); "
        f"found = [v for v in vars(names).values() if hasattr(v, 'PACKAGES') and v.__module__ == names.__name__]; "
        "print('PACKAGE', found[0].PACKAGES[0], metadata.version(found[0].PACKAGES[0]))"
    )
    done = subprocess.run(
        [str(find_python(host)), "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    _, package, version = next(line for line in done.splitlines() if line.startswith("PACKAGE")).split()
    return f"{package} {version}"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        run_contract(report)
        outcomes = read_outcomes(report)
    rows = [format_row(find_version(host), outcomes[host]) for host in ENVIRONMENTS if any(outcomes[host].values())]
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{HEAD}" + "\n".join(rows) + f"\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
