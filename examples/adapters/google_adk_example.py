"""Run an agent of Google's ADK against a scripted model, offline, and print what Elision hid and saved."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from elision.adapters.google_adk import ElisionAdkPlugin

last_request = []


class ScriptedLlm(BaseLlm):
    """Reads 24 files, then the first one again, which is hidden by then, and ends."""

    async def generate_content_async(self, llm_request, stream=False):
        last_request[:] = llm_request.contents
        number = sum(content.role == "model" for content in llm_request.contents)
        call = types.FunctionCall(name="read_file", args={"path": f"part_{number}.py"})
        if number == 24:
            call = types.FunctionCall(name="elision_recall", args={"handle": "t1.1", "lines": "40-41"})
        part = types.Part(function_call=call) if number <= 24 else types.Part(text="All files are read.")
        tokens = sum(len(str(content)) for content in llm_request.contents) // 4
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=tokens, candidates_token_count=20)
        yield LlmResponse(content=types.Content(role="model", parts=[part]), usage_metadata=usage)


def read_file(path: str) -> dict:
    """Read a file."""
    return {"result": "\n".join(f"{path}, line {line}: total += {line}" for line in range(120))}


def read_result(content):
    return content.parts[0].function_response.response["result"]


async def main():
    """Run the agent."""
    with ElisionAdkPlugin("masking(window=5)", model="gemini-2.5-pro", store="memory:") as elision:
        agent = LlmAgent(name="reader", model=ScriptedLlm(model="gemini-2.5-pro"), tools=[read_file])
        runner = InMemoryRunner(app=App(name="files", root_agent=agent, plugins=[elision]))
        session = await runner.session_service.create_session(app_name="files", user_id="me", session_id="s1")
        question = types.UserContent("Read all files.")
        events = [event async for event in runner.run_async(user_id="me", session_id=session.id, new_message=question)]
        savings = elision.sessions.open("files/me/s1/reader").session.report().savings
    print("sent:", read_result(last_request[2]))
    print("kept:", read_result(events[1].content)[:27])
    print("recalled:", read_result(events[-2].content).splitlines()[0])
    print(f"saved: {savings.tokens:,} of {savings.raw_tokens:,} prompt tokens")


asyncio.run(main())
