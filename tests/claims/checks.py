"""What placeholders claim, against what results say: checks that know nothing of how placeholders are written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.claims.hidden_results import HiddenResult

_FAILURE: Final = re.compile(
    r"^Traceback \(most recent call last\):|^(?:\w+\.)*\w*(?:Error|Exception): |^\s*(?:FAILED|FAIL:|❌|✗|✘)"
    r"|^=+ .*\b[1-9]\d* (?:failed|errors?)\b|^FAILED \(|^fatal: |: command not found$|^Segmentation fault",
    re.MULTILINE,
)
_SAYS_FAILURE: Final = re.compile(
    r"error|exception|fail|exit [1-9-]|reject|not found|no such|no replacement|denied|invalid|interrupt"
    r"|[✗✘❌]|traceback|fatal|timed out|usage",
    re.IGNORECASE,
)
_CUT: Final = re.compile(r"\|\s*(head|tail)(?: -n)?\s*-?(\d+)?\s*(?:2>&1)?\s*(?:\)|;|&&|\Z)")
_COUNT: Final = re.compile(r"(?:exit -?\d+, )?(\d+) (?:match|path|entr|line|file|commit|row)")
_STATED_CODE: Final = re.compile(
    r"<returncode>(-?\d+)</returncode>|completed with exit code (-?\d+)|exited with code (-?\d+)"
)
_EXIT: Final = re.compile(r"exit (-?\d+)")
_PAGE_KEY: Final = re.compile(r"(?:og|fb|twitter|article):\w+|viewport|meta_tags|robots|referrer")
_ESCAPED: Final = re.compile(r"\\[nrt](?:[A-Z+-]|\Z|\\)|\\u[0-9a-f]{4}|u00[0-9a-f]{2}\Z|\\[\"']")
_BODY: Final = re.compile(r"<output>\n?(.*?)</output>", re.DOTALL)
_PAIR: Final = re.compile(r'(\S+?)=((?:"[^"]*"|[^\s",]+)(?:,(?:"[^"]*"|[^\s",]+))*)')
_VALUE: Final = re.compile(r'"[^"]*"|[^",]+')
_WRAPPING: Final = re.compile(
    r"</?(?:returncode|output|warning)\w*>|\[The command completed|\(Open file:|\(Current dir"
)


def find_hidden_failure(hidden: HiddenResult) -> Iterator[str]:
    """Yield the failure that the result shows and the placeholder does not mention."""
    if hidden.is_lookup or re.match(r"edited|written|created|[0-9a-f]{7,} ", hidden.outcome):
        return
    # A terminal echoes the command, and a command may name the failures that it looks for.
    typed = {line.strip() for line in hidden.call.split("\n")}
    lines = [line for line in hidden.text.split("\n") if line.strip() and line.strip() not in typed]
    failure = _FAILURE.search("\n".join(lines))
    outcome = re.sub(r"\b(?:no|without|0) (?:errors?|failures?)", "", hidden.outcome)
    if failure and not _SAYS_FAILURE.search(outcome):
        yield failure[0].strip()


def find_partial_count(hidden: HiddenResult) -> Iterator[str]:
    """Yield the count that is only that of the lines which `| head` or `| tail` let through."""
    count = _COUNT.match(hidden.outcome)
    cut = _CUT.search(hidden.call)
    if not count or not cut or re.search(r":(?:\d+-|last )", hidden.label):
        return
    lines = [line for line in hidden.text.split("\n") if line.strip() and not _WRAPPING.search(line)]
    if len(lines) >= int(cut[2] or 10):
        yield count[0]


def find_wrong_exit_code(hidden: HiddenResult) -> Iterator[str]:
    """Yield the exit code that the environment did not state."""
    claimed = _EXIT.match(hidden.outcome)
    stated = _STATED_CODE.search(hidden.text)
    if claimed and stated and claimed[1] not in stated.groups():
        yield claimed[0]


def find_margin_numbers(hidden: HiddenResult) -> Iterator[str]:
    """Yield numbers of the gist that are nothing but line numbers in a margin."""
    for item in hidden.items:
        if item.isdigit() and re.search(rf"^\s*{item}(?:\t|→|[:-](?:\s{{2,}}|[A-Za-z_]))", hidden.text, re.MULTILINE):
            elsewhere = re.sub(rf"^(?:\S+:)?\s*{item}(?:[\t→:|-])", "", hidden.text, flags=re.MULTILINE)
            if not re.search(rf"(?<!\d){item}(?!\d)", elsewhere):
                yield item


def find_url_parts(hidden: HiddenResult) -> Iterator[str]:
    """Yield `//x` beside `https://x`."""
    yield from (item for item in hidden.items if item.startswith("//") and f":{item}" in hidden.text)


def find_escapes(hidden: HiddenResult) -> Iterator[str]:
    """Yield items that are parts of escapes: `nTest` of "\\nTest", `t\\tclassName`."""
    for item in hidden.items:
        is_rest = item[0] in "nrtu" and f"\\{item}" in hidden.text
        if _ESCAPED.search(item) or (is_rest and not re.search(rf"(?<![\\\w]){re.escape(item)}", hidden.text)):
            yield item


def find_page_keys(hidden: HiddenResult) -> Iterator[str]:
    """Yield keys of a page's metadata."""
    yield from filter(_PAGE_KEY.fullmatch, hidden.items)


def find_invented_items(hidden: HiddenResult) -> Iterator[str]:
    """Yield items that the result does not have."""
    if read_objects(hidden.text) is None:
        yield from (item for item in hidden.items if item not in hidden.text)


def find_misplaced_values(hidden: HiddenResult) -> Iterator[str]:
    """Yield what the gist of JSON tells side by side though no one object has it, be it a key and a value."""
    objects = read_objects(hidden.text)
    if objects is None or not hidden.gist:
        return
    for group in hidden.gist.split("; "):
        pairs = {(key, value.strip('"')) for key, values in _PAIR.findall(group) for value in _VALUE.findall(values)}
        if pairs:
            is_misplaced = not any(pairs <= each for each in objects)
        else:
            # Items that stand in prose belong to no object.
            is_misplaced = any(item not in hidden.text for item in group.split())
        if is_misplaced:
            yield group


def read_objects(text: str) -> list[set[tuple[str, str]]] | None:
    """Return the fields of each object of a result that is JSON, those of an object without lists in it included."""
    for body in (text, *(found[1] for found in [_BODY.search(text)] if found)):
        try:
            value = json.loads(body)
        except ValueError:
            continue
        objects: list[set[tuple[str, str]]] = []
        _collect_fields("", value, objects)
        return objects
    return None


def _collect_fields(key: str, value: Any, objects: list[set[tuple[str, str]]]) -> set[tuple[str, str]]:
    """Add the objects in `value` to `objects`. Return the fields that `value` adds to the object which has it."""
    if not isinstance(value, dict | list):
        return {(key.replace(" ", "_"), str(value))}
    fields = set()
    for name, inner in value.items() if isinstance(value, dict) else ((key, inner) for inner in value):
        found = _collect_fields(name, inner, objects)
        # Objects of a list are apart; what stands beside them in the list is the owner's.
        if not (isinstance(value, list) and isinstance(inner, dict)):
            fields |= found
    if isinstance(value, list):
        return fields
    objects.append(fields)
    return set() if any(isinstance(inner, dict | list) for inner in value.values()) else fields


CHECKS: Final[Mapping[str, Callable[[HiddenResult], Iterator[str]]]] = {
    "hides a failure": find_hidden_failure,
    "counts a part as the whole": find_partial_count,
    "names another exit code": find_wrong_exit_code,
    "repeats numbers of a margin": find_margin_numbers,
    "repeats a part of a URL": find_url_parts,
    "shows parts of escapes": find_escapes,
    "shows keys of a page's metadata": find_page_keys,
    "names what the result does not have": find_invented_items,
    "puts values together that are apart": find_misplaced_values,
}


def list_false_claims(hidden: HiddenResult) -> Iterator[tuple[str, str]]:
    """Yield (check, what is wrong) of every false or worthless claim of a placeholder."""
    for name, check in CHECKS.items():
        yield from ((name, found) for found in check(hidden))
