"""Version control: what changed, which commit."""

from __future__ import annotations

import re
from collections import Counter

from elision.strategies.extractors.command import Command, Stage, find_command, find_output, qualify_count
from elision.strategies.extractors.outcome import Outcome, format_count
from elision.strategies.extractors.shell import describe_status
from elision.strategies.extractors.wrappers import UnwrappedOutput
from elision.trajectory.turn import Action, Observation

#: Characters of a diff that are counted.
DIFF_CHARS = 2_000_000

_STAT = re.compile(
    r"^ ?(\d{1,7}) files? changed(?:, (\d{1,9}) insertions?\(\+\))?(?:, (\d{1,9}) deletions?\(-\))?", re.MULTILINE
)
_COMMITTED = re.compile(r"^\[([^\]\n]{1,100}) ([0-9a-f]{7,40})\] ([^\n]{0,300})", re.MULTILINE)
_COMMIT = re.compile(r"^(?:\* )?commit ([0-9a-f]{7,40})", re.MULTILINE)
_ONE_LINE_LOG = re.compile(r"^[*|\\/ ]{0,12}([0-9a-f]{7,40})[ \t]+([^\n]{0,200})", re.MULTILINE)
_SUBJECT = re.compile(r"^    (\S[^\n]{0,200})", re.MULTILINE)
_SHORT = re.compile(r"([ MADRCUT?!]{2}) \S")
_LONG = re.compile(r"\t(modified|new file|deleted|renamed|both modified|typechange):")
_STATES = {
    "M": "modified",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "?": "untracked",
    "U": "unmerged",
    "C": "copied",
}


def describe_git_command(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A command of git alone: status, diff, log, show, commit; any other by its first line."""
    command = find_command(action, observation)
    stage = _find_last_git(command) if command else None
    if command is None or stage is None or stage.redirect_target:
        return None
    envelope = find_output(action, observation)
    result = _describe_git_result(_find_subcommand(stage), stage, envelope)
    return Outcome(command.label, qualify_count(result, envelope.body, command))


def describe_diff(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A unified diff, whatever produced it."""
    command = find_command(action, observation)
    body = find_output(action, observation).body
    if command is None or not body[:1_000].lstrip().startswith(("diff --git ", "--- a/", "Index: ")):
        return None
    return Outcome(command.label, qualify_count(_count_diff_changes(body), body, command))


def _find_last_git(command: Command) -> Stage | None:
    """The git command whose output stands last, if git is all there is, but for pagers."""
    if not all(pipeline[0].program == "git" for pipeline in command.pipelines):
        return None
    piped = [stage for pipeline in command.pipelines for stage in pipeline[1:]]
    if all(stage.program in ("head", "tail", "cat", "less") for stage in piped):
        return command.pipelines[-1][0]
    return None


def _find_subcommand(stage: Stage) -> str:
    words = list(stage.words[1:])
    while words and words[0].startswith("-"):
        # -C and -c take a value.
        if words[0] in ("-C", "-c"):
            words = words[2:]
        else:
            words = words[1:]
    if words:
        return words[0]
    return ""


def _describe_git_result(subcommand: str, stage: Stage, envelope: UnwrappedOutput) -> str:
    if envelope.has_failed or not envelope.body.strip():
        if envelope.has_failed or subcommand != "diff":
            return describe_status(envelope)
        return "no changes"
    read = {"status": _describe_status, "log": _describe_log, "show": _describe_show, "commit": _describe_commit}.get(
        subcommand
    )
    if read is not None:
        return read(envelope)
    if subcommand in ("diff", "stash") and (changes := _count_diff_changes(envelope.body)):
        return changes
    if _COMMITTED.search(envelope.head_and_tail):
        return _describe_commit(envelope)
    if stat := _find_diff_stat(envelope.head):
        return stat
    lines = [line for line in envelope.head.split("\n") if line.strip()]
    if len(lines) == 1:
        return lines[0]
    return describe_status(envelope)


def _describe_status(envelope: UnwrappedOutput) -> str:
    body = envelope.head_and_tail
    if "nothing to commit, working tree clean" in body:
        return "clean"
    long = [found[1] for line in body.split("\n") if (found := _LONG.match(line))]
    short = [found[1].strip()[:1] for line in body.split("\n") if (found := _SHORT.match(line[:100]))]
    counts = Counter(long or (_STATES.get(state, "changed") for state in short))
    if long or "Untracked files:" in body:
        untracked = body.partition("Untracked files:")[2].partition("\n\n")[0]
        counts["untracked"] += sum(line.startswith("\t") for line in untracked.split("\n"))
    shown = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    return shown or body.strip().partition("\n")[0]


def _describe_log(envelope: UnwrappedOutput) -> str:
    body = envelope.head_and_tail
    if full := _COMMIT.findall(body):
        subject = _SUBJECT.search(body)
        return f"{format_count(len(full), 'commit')}, newest {full[0][:8]} {subject[1] if subject else ''}"
    if brief := _ONE_LINE_LOG.findall(body):
        return f"{format_count(len(brief), 'commit')}, newest {brief[0][0][:8]} {brief[0][1]}"
    return describe_status(envelope)


def _describe_show(envelope: UnwrappedOutput) -> str:
    head = envelope.head
    commit = _COMMIT.search(head[:200])
    subject = _SUBJECT.search(head[:4_000])
    if commit is None:
        if envelope.line_count > 1:
            whole = format_count(envelope.line_count, "line")
        else:
            whole = head.strip()
        return _count_diff_changes(envelope.body) or whole
    changes = _find_diff_stat(envelope.head_and_tail) or _count_diff_changes(envelope.body)
    summary_line = f"{commit[1][:8]} {subject[1][:50] if subject else ''}".strip()
    if changes:
        return f"{summary_line}; {changes}"
    return summary_line


def _describe_commit(envelope: UnwrappedOutput) -> str:
    found = _COMMITTED.search(envelope.head_and_tail)
    if found is None:
        return describe_status(envelope)
    stat = _find_diff_stat(envelope.head_and_tail)
    return f"{found[2]} {found[3][:50]}" + (f"; {stat}" if stat else "")


def _find_diff_stat(text: str) -> str:
    found = _STAT.search(text)
    if found is None:
        return ""
    return f"{format_count(int(found[1]), 'file')}, +{found[2] or 0} -{found[3] or 0}"


def _count_diff_changes(body: str) -> str:
    """Files and lines of a unified diff; "" if it is none."""
    if stat := _find_diff_stat(body[-2_000:]):
        return stat
    files = added = removed = 0
    for line in body[:DIFF_CHARS].split("\n"):
        files += line.startswith("+++ ")
        added += line.startswith("+") and not line.startswith("+++ ")
        removed += line.startswith("-") and not line.startswith("--- ")
    if files:
        return f"{format_count(files, 'file')}, +{added} -{removed}"
    return ""
