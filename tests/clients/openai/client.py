"""The official Python client at the OpenAI-compatible door. BASE and KEY say where; prints what held, or fails."""

import json
import os

import openai
from openai import OpenAI

client = OpenAI(base_url=os.environ["BASE"], api_key=os.environ["KEY"], max_retries=0)

names = [model.id for model in client.models.list()]
assert "economy" in names and "neuron:brief" in names and "fascicle:answer_with_memory" in names, names

hello = [{"role": "user", "content": "Say hello."}]
whole = client.chat.completions.create(model="economy", messages=hello, max_tokens=20, temperature=0)
assert whole.choices[0].message.content and whole.usage.total_tokens > 0, whole

chunks = list(client.chat.completions.create(model="economy", messages=hello, max_tokens=20, temperature=0, stream=True))
streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert streamed == whole.choices[0].message.content, (streamed, whole)
assert any(chunk.choices and chunk.choices[0].finish_reason for chunk in chunks)

schema = {"type": "object", "additionalProperties": False, "required": ["city"], "properties": {"city": {"type": "string", "maxLength": 20}}}
fitted = client.chat.completions.create(
    model="economy", messages=[{"role": "user", "content": [{"type": "text", "text": "Which city is the capital of France?"}]}],
    response_format={"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}}, temperature=0)
assert set(json.loads(fitted.choices[0].message.content)) == {"city"}, fitted

parameters = {"type": "object", "required": ["place"], "additionalProperties": False, "properties": {"place": {"type": "string", "maxLength": 30}}}
tools = [{"type": "function", "function": {"name": "weather", "description": "tells the weather of a place", "parameters": parameters}}]
ask = [{"role": "user", "content": "What is the weather in Faro?"}]
called = client.chat.completions.create(model="neuron:brief", messages=ask, tools=tools)
call = called.choices[0].message.tool_calls[0]
assert called.choices[0].finish_reason == "tool_calls" and call.function.name == "weather", called
assert set(json.loads(call.function.arguments)) == {"place"}
ask += [called.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
told = client.chat.completions.create(model="neuron:brief", messages=ask, tools=tools)
assert told.choices[0].finish_reason in ("stop", "length") and told.choices[0].message.content, told

answered = client.chat.completions.create(model="fascicle:answer_with_memory", messages=[{"role": "user", "content": "What is a tide?"}])
assert "answer" in json.loads(answered.choices[0].message.content), answered

vectors = client.embeddings.create(model="embedder", input=["the sea", "the ocean", "a tax form"])
one, two, three = (item.embedding for item in vectors.data)
likeness = lambda a, b: sum(x * y for x, y in zip(a, b))
assert likeness(one, two) > likeness(one, three), "alike is alike"

for wrong, status in [({"model": "nobody", "messages": hello}, 404), ({"model": "neuron:nobody", "messages": hello}, 404)]:
    try:
        client.chat.completions.create(**wrong)
        raise AssertionError("it was not refused")
    except openai.APIStatusError as error:
        assert error.status_code == status and error.message, error
try:
    OpenAI(base_url=os.environ["BASE"], api_key="wrong", max_retries=0).models.list()
    raise AssertionError("a wrong key was let in")
except openai.AuthenticationError:
    pass
print(f"openai-python {openai.__version__}: models, chat, stream, schema, tools, neuron, fascicle, embeddings, errors")
