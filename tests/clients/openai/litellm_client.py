"""LiteLLM at the OpenAI-compatible door. BASE and KEY say where; prints what held, or fails."""

import os
from importlib.metadata import version

# Without it prices are fetched from outside when the package is loaded.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

litellm.telemetry = False
door = {"api_base": os.environ["BASE"], "api_key": os.environ["KEY"], "num_retries": 0}
hello = [{"role": "user", "content": "Say hello."}]

whole = litellm.completion(model="openai/economy", messages=hello, max_tokens=20, temperature=0, **door)
assert whole.choices[0].message.content and whole.usage.completion_tokens <= 20, whole
chunks = litellm.completion(
    model="openai/economy", messages=hello, max_completion_tokens=20, temperature=0, stream=True,
    stream_options={"include_usage": True}, **door)
parts = [(chunk.choices[0].delta.content or "" if chunk.choices else "", getattr(chunk, "usage", None)) for chunk in chunks]
assert "".join(text for text, _ in parts) == whole.choices[0].message.content, parts
assert any(usage and usage.total_tokens > 0 for _, usage in parts), parts

parameters = {"type": "object", "required": ["place"], "additionalProperties": False, "properties": {"place": {"type": "string", "maxLength": 30}}}
tools = [{"type": "function", "function": {"name": "weather", "description": "tells the weather of a place", "parameters": parameters}}]
called = litellm.completion(
    model="openai/neuron:brief", messages=[{"role": "user", "content": "What is the weather in Faro?"}], tools=tools, **door)
assert called.choices[0].message.tool_calls[0].function.name == "weather", called

vectors = litellm.embedding(model="openai/embedder", input=["the sea", "a tax form"], **door)
assert len(vectors.data) == 2 and len(vectors.data[0]["embedding"]) > 100, vectors

for wrong, error in [("openai/nobody", litellm.NotFoundError), ("openai/neuron:nobody", litellm.NotFoundError)]:
    try:
        litellm.completion(model=wrong, messages=hello, **door)
        raise AssertionError("it was not refused")
    except error as refused:
        assert "nobody" in str(refused), refused
print(f"litellm {version('litellm')}: chat, stream with usage, tools, embeddings, errors")
