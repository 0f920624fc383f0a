"""Version control: what changed, which commit."""

from __future__ import annotations

import re
from collections import Counter

from elision.strategies.extractors.command import Command, Stage, command_of, output_of
from elision.strategies.extractors.envelope import Envelope
from elision.strategies.extractors.outcome import Outcome, counted
from elision.strategies.extractors.shell import status
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


def versioned(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A command of git alone: status, diff, log, show, commit; any other by its first line."""
    command = command_of(action, observation)
    stage = _last_git(command) if command else None
    if command is None or stage is None or stage.target:
        return None
    envelope = output_of(action, observation)
    return Outcome(command.label, _result(_subcommand(stage), stage, envelope))


def diffed(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A unified diff, whatever produced it."""
    command = command_of(action, observation)
    body = output_of(action, observation).body
    if command is None or not body[:1_000].lstrip().startswith(("diff --git ", "--- a/", "Index: ")):
        return None
    return Outcome(command.label, _changes(body))


def _last_git(command: Command) -> Stage | None:
    """The git command whose output stands last, if git is all there is, but for pagers."""
    if not all(pipeline[0].program == "git" for pipeline in command.pipelines):
        return None
    piped = [stage for pipeline in command.pipelines for stage in pipeline[1:]]
    if all(stage.program in ("head", "tail", "cat", "less") for stage in piped):
        return command.pipelines[-1][0]
    return None


def _subcommand(stage: Stage) -> str:
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


def _result(subcommand: str, stage: Stage, envelope: Envelope) -> str:
    if envelope.failed or not envelope.body.strip():
        if envelope.failed or subcommand != "diff":
            return status(envelope)
        return "no changes"
    read = {"status": _status, "log": _log, "show": _show, "commit": _commit}.get(subcommand)
    if read is not None:
        return read(envelope)
    if subcommand in ("diff", "stash") and (changes := _changes(envelope.body)):
        return changes
    if _COMMITTED.search(envelope.ends):
        return _commit(envelope)
    if stat := _stat(envelope.head):
        return stat
    lines = [line for line in envelope.head.split("\n") if line.strip()]
    if len(lines) == 1:
        return lines[0]
    return status(envelope)


def _status(envelope: Envelope) -> str:
    body = envelope.ends
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


def _log(envelope: Envelope) -> str:
    body = envelope.ends
    if full := _COMMIT.findall(body):
        subject = _SUBJECT.search(body)
        return f"{counted(len(full), 'commit')}, newest {full[0][:8]} {subject[1] if subject else ''}"
    if brief := _ONE_LINE_LOG.findall(body):
        return f"{counted(len(brief), 'commit')}, newest {brief[0][0][:8]} {brief[0][1]}"
    return status(envelope)


def _show(envelope: Envelope) -> str:
    head = envelope.head
    commit = _COMMIT.search(head[:200])
    subject = _SUBJECT.search(head[:4_000])
    if commit is None:
        if envelope.lines > 1:
            whole = counted(envelope.lines, "line")
        else:
            whole = head.strip()
        return _changes(envelope.body) or whole
    changes = _stat(envelope.ends) or _changes(envelope.body)
    said = f"{commit[1][:8]} {subject[1][:50] if subject else ''}".strip()
    if changes:
        return f"{said}; {changes}"
    return said


def _commit(envelope: Envelope) -> str:
    found = _COMMITTED.search(envelope.ends)
    if found is None:
        return status(envelope)
    stat = _stat(envelope.ends)
    return f"{found[2]} {found[3][:50]}" + (f"; {stat}" if stat else "")


def _stat(text: str) -> str:
    found = _STAT.search(text)
    if found is None:
        return ""
    return f"{counted(int(found[1]), 'file')}, +{found[2] or 0} -{found[3] or 0}"


def _changes(body: str) -> str:
    """Files and lines of a unified diff; "" if it is none."""
    if stat := _stat(body[-2_000:]):
        return stat
    files = added = removed = 0
    for line in body[:DIFF_CHARS].split("\n"):
        files += line.startswith("+++ ")
        added += line.startswith("+") and not line.startswith("+++ ")
        removed += line.startswith("-") and not line.startswith("--- ")
    if files:
        return f"{counted(files, 'file')}, +{added} -{removed}"
    return ""
