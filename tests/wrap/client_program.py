"""A program with nothing but OpenAI's client: it reads files in many turns, as a coding agent does.

python client_program.py [CALLS] [EXIT_CODE]
"""

from __future__ import annotations

import sys

import openai

TEXT = "\n".join(f"line {number}: alpha_{number}" for number in range(200))


def main(calls: int, code: int) -> None:
    client = openai.OpenAI(api_key="sk-client", max_retries=0)
    messages: list = [{"role": "user", "content": "Look at every file."}]
    for number in range(1, calls + 1):
        answer = client.chat.completions.create(model="gpt-5", messages=messages).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        for call in answer.tool_calls or ():
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"file {number}\n{TEXT}"})
    print(messages[-1].get("content"))
    sys.exit(code)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
