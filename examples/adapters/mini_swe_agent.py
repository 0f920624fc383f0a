"""mini-swe-agent with Elision, offline: a script stands in for the model, the shell is real."""

import json

import litellm
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment

from elision.adapters.mini_swe_agent import ElisionLitellmModel

last_request = []


def play(**request):
    """Answer like `litellm.completion`: 30 commands, one recall, then the end."""
    last_request[:] = request["messages"]
    turn = sum(message["role"] == "assistant" for message in request["messages"])
    name, arguments = "bash", {"command": f"seq {turn}000 {turn}999"}
    if turn == 30:
        name, arguments = "elision_recall", {"handle": "t2.1", "head": 2}
    elif turn == 31:
        arguments["command"] = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo counted"
    call = {"id": f"call_{turn}", "function": {"name": name, "arguments": json.dumps(arguments)}}
    message = {"role": "assistant", "tool_calls": [{"type": "function", **call}]}
    length = len(str(request["messages"])) // 4
    usage = {"prompt_tokens": length, "completion_tokens": 20, "total_tokens": length + 20}
    return litellm.ModelResponse(usage=usage, choices=[{"finish_reason": "tool_calls", "message": message}])


litellm.completion = play
options = {"model_name": "openai/gpt-5", "cost_tracking": "ignore_errors"}
with ElisionLitellmModel("masking(window=5)", store="memory:", **options) as model:
    agent = DefaultAgent(
        model, LocalEnvironment(), system_template="You count.", instance_template="{{task}}", cost_limit=0
    )
    agent.run("Count.")
    (session,) = model.list_sessions()
    report = model.sessions.open(session).session.report()

print("sent:", last_request[5]["content"][:60])
print("kept:", agent.messages[5]["content"].split()[:4])
print("recalled:", agent.messages[63]["content"].splitlines())
print(f"saved: {report.savings.tokens:,} tokens")
