"""The first events that a process decodes, in several threads."""

from __future__ import annotations

import subprocess
import sys

#: Decodes events in 16 threads as the first thing that a process does, and prints which annotations are read then.
_PROGRAM = """
import sys, threading
from elision.trajectory.events import decode_event, encode_event
from elision.trajectory.events import HeadSet, PassDecided, RequestSent, TurnAdded, UsageReported
from elision.trajectory.content import make_content
from elision.trajectory.turn import Action, Head, Observation, Turn
from elision.trajectory.usage import Usage

result = Observation(action_id="c", tool="look", content=make_content("a result"))
turn = Turn(index=1, actions=(Action(id="c", name="look"),), observations=(result,))
events = [HeadSet(Head()), TurnAdded(turn, "n"), PassDecided(1, "why"), RequestSent(call=1, tokens=5)]
events.append(UsageReported(call=1, usage=Usage(input=3)))
values = [encode_event(event) for event in events]
late = set()
wrong = []
start = threading.Barrier(16)

def watch(frame, event, argument):
    if event == "call" and frame.f_code.co_name in ("get_class_annotations", "_eval_type", "ForwardRef"):
        late.add(frame.f_code.co_name)

def decode():
    mine = [dict(value) for value in values]
    start.wait()
    if [decode_event(value) for value in mine] != events:
        wrong.append(1)

threading.setprofile(watch)
threads = [threading.Thread(target=decode) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(wrong), sorted(late))
"""


def test_no_annotation_is_read_in_a_thread() -> None:
    """msgspec reads those of a class at its first use. Where several threads did so at once, the process crashed."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "0 []"
