"""What a client sees of each thing a remote model may do, and what aimock's journal says was asked."""
import json, os, threading, time, urllib.error, urllib.request

MOCK, BASE = os.environ["MOCK"], os.environ["BASE"]
STREAM = {"accept": "text/event-stream"}


def send(url, body=None, method=None, token="operator-token-for-tests", **headers):
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json", **headers}
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    text = answer.read().decode()
    kind = answer.headers.get("content-type", "")
    return answer.status, json.loads(text) if "json" in kind else text, answer.headers


def ask(path, body=None, **headers):
    return send(BASE + path, body, **headers)


def mock(path, body=None, method=None):
    return send(MOCK + "/__aimock" + path, body, method, token="mock-key")[1]


def invoke(neuron, text, **more):
    return ask(f"/neurons/{neuron}/invoke", {"input": text, **more})


def stream(neuron, text):
    """The events of a stream as (name, data)."""
    status, text, headers = ask(f"/neurons/{neuron}/invoke", {"input": text}, **STREAM)
    assert status == 200 and headers["content-type"] == "text/event-stream", (status, text)
    frames = [dict(line.split(": ", 1) for line in frame.split("\n")) for frame in text.strip().split("\n\n")]
    return [(frame["event"], json.loads(frame["data"])) for frame in frames]


def asked():
    """What the model was asked since the last time: (status, body) in order."""
    entries = mock("/journal?path=/v1/chat/completions")
    mock("/reset/journal", method="POST")
    return [(entry["response"]["status"], entry["body"]) for entry in entries]


def account():
    body = ask("/house/resources?limit=1")[1]
    return body["spent"]["tokens"], body["held"]["tokens"]


def well():
    """Nothing is left of a fault: the next call goes through, and nothing is held."""
    assert invoke("base", "plain")[:2] == (200, {"status": "completed", "output": "Hello from afar."})
    assert account()[1] == 0
    asked()


BOAT = {"type": "object", "required": ["name", "metres"], "properties": {"name": {"type": "string"}, "metres": {"type": "integer"}}, "additionalProperties": False}
LOOK_UP = {"name": "look_up", "description": "Looks a place up.", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}
for spec in (
    {"id": "base"},
    {"id": "tools", "tools": [LOOK_UP]},
    {"id": "boat", "kind": "structured_output", "structured_output": BOAT},
    {"id": "mend", "memory": "mend", "kind": "structured_output", "structured_output": BOAT},
    {"id": "wrong", "memory": "never right", "kind": "structured_output", "structured_output": BOAT},
    {"id": "eco", "tier": "economy"},
    {"id": "high", "tier": "high"},
):
    assert ask("/neurons", spec)[0] == 201
well()

# an answer, whole and in pieces; each is paid as the provider counted it
before = account()[0]
assert invoke("base", "plain")[1]["output"] == "Hello from afar."
assert account()[0] == before + 18
((status, sent),) = asked()
assert status == 200 and sent["model"] == "mock-model" and not sent["stream"] and sent["messages"][-1] == {"role": "user", "content": "plain"}
events = stream("base", "pieces")
assert [name for name, _ in events] == ["delta"] * 9 + ["usage", "done"], events
assert "".join(data["text"] for name, data in events if name == "delta") == events[-1][1]["output"] == "One two three four five six seven."
assert events[-2][1] == {"prompt_tokens": 21, "completion_tokens": 9, "total_tokens": 30}
((_, sent),) = asked()
assert sent["stream"] and sent["stream_options"] == {"include_usage": True}
well()

# tools of the client: 202, then on; also two at once in any order, one the model made up, and in pieces
status, paused, _ = invoke("tools", "tide")
assert status == 202 and paused["tool_calls"] == [{"id": "call_tide", "name": "look_up", "params": '{"place":"Faro"}'}], paused
results = {"context_token": paused["context_token"], "tool_results": [{"id": "call_tide", "result": "3.6 metres"}]}
for _ in range(2):  # the same again brings the same
    assert ask("/neurons/tools/continue", results)[:2] == (200, {"status": "completed", "output": "High water stands at 3.6 metres."})
first, second = asked()
assert first[1]["tools"][0]["function"]["name"] == "look_up"
assert [message["role"] for message in second[1]["messages"][-2:]] == ["assistant", "tool"]
assert second[1]["messages"][-1]["tool_call_id"] == "call_tide" and second[1]["messages"][-2]["tool_calls"][0]["id"] == "call_tide"
status, paused, _ = invoke("tools", "two at once")
assert status == 202 and [call["id"] for call in paused["tool_calls"]] == ["call_a", "call_b"]
assert ask("/neurons/tools/continue", {"context_token": paused["context_token"], "tool_results": [{"id": "call_b", "result": "x"}]})[0] == 422
both = [{"id": "call_b", "error": "no map"}, {"id": "call_a", "result": "x"}]
assert ask("/neurons/tools/continue", {"context_token": paused["context_token"], "tool_results": both})[1]["output"] == "Both looked up."
assert invoke("tools", "no such tool")[1]["output"] == "I did without."
events = stream("tools", "both kinds")
assert [name for name, _ in events] == ["delta", "tool_call_delta", "tool_call_delta", "usage", "done"], events
assert events[-1][1]["status"] == "tool_call_required" and events[-1][1]["tool_calls"][0]["params"] == '{"place":"Faro"}'
well()

# JSON of a schema: right, mended, and never right
assert invoke("boat", "a boat")[1]["output"] == {"name": "Petrel", "metres": 9}
((_, sent),) = asked()
assert sent["response_format"]["type"] == "json_schema" and sent["response_format"]["json_schema"]["schema"]["required"] == ["name", "metres"]
assert invoke("mend", "wrong at first")[1]["output"] == {"name": "Heron", "metres": 7}
assert len(asked()) == 2
events = stream("mend", "wrong at first")
assert ("again", {}) in events and events[-1][1]["output"] == {"name": "Heron", "metres": 7}
asked()
status, problem, _ = invoke("wrong", "x")
assert (status, problem["code"]) == (502, "unusable_output") and len(asked()) == 3
well()

# 429 and 503: it waits as it is told, and asks again
began = time.monotonic()
assert invoke("base", "slow down once")[1]["output"] == "After the wait."
assert 0.9 < time.monotonic() - began and [status for status, _ in asked()] == [429, 200]
assert invoke("base", "unavailable once")[1]["output"] == "Back again."
assert [status for status, _ in asked()] == [503, 200]

# every other fault has its name, is asked once, and leaves the next call whole
for text, status, code in (
    ("server error", 502, "model_failed"),
    ("bad gateway", 502, "model_failed"),
    ("too long", 422, "model_refused"),
    ("bad key", 502, "model_refused"),
    ("malformed", 502, "model_failed"),
    ("dropped", 502, "model_failed"),
    ("disconnected", 502, "model_failed"),
    ("late", 502, "model_failed"),
):
    well()
    came, problem, headers = invoke("base", text)
    assert (came, problem["code"], headers["content-type"]) == (status, code, "application/problem+json"), (text, came, problem)
    # aimock notes nothing of a call whose caller has gone
    assert len(asked()) == (text != "late"), text
    well()
    (*said, (last, problem)) = stream("base", text)
    assert (said, last, problem["status"], problem["code"]) == ([], "error", status, code), (text, said, problem)
    assert len(asked()) == (text != "late"), text
well()
status, problem, _ = invoke("base", "late", deadline_s=0.5)
assert (status, problem["code"]) == (504, "deadline")
well()

# a stream that is cut, or stalls
for text in ("cut by time", "stalls"):
    (*said, (last, problem)) = stream("base", text)
    assert (last, problem["code"]) == ("error", "model_failed"), (text, said, problem)
    assert all(name == "delta" for name, _ in said) and (said or text == "stalls"), (text, said)
    well()

# the OpenAI-compatible door hands it on
answer = ask("/chat/completions", {"model": "standard", "messages": [{"role": "user", "content": "length"}]})[1]
assert answer["choices"][0]["finish_reason"] == "length"
tools = [{"type": "function", "function": {"name": "look_up", "parameters": LOOK_UP["parameters"]}}]
answer = ask("/chat/completions", {"model": "standard", "messages": [{"role": "user", "content": "tide"}], "tools": tools})[1]
assert answer["choices"][0]["finish_reason"] == "tool_calls" and answer["choices"][0]["message"]["tool_calls"][0]["id"] == "call_tide"
for streaming in (False, True):
    status, problem, _ = ask("/chat/completions", {"model": "standard", "messages": [{"role": "user", "content": "server error"}], "stream": streaming})
    assert status == 502 and "it broke" in problem["error"]["message"]
_, chunks, _ = ask("/chat/completions", {"model": "standard", "messages": [{"role": "user", "content": "pieces"}], "stream": True})
chunks = [line.removeprefix("data: ") for line in chunks.split("\n\n") if line]
assert chunks.pop() == "[DONE]"
roles = {choice["delta"].get("role") for chunk in chunks for choice in json.loads(chunk)["choices"]}
assert roles <= {"assistant", None}, roles
well()

# embeddings
status, answer, _ = ask("/embeddings", {"model": "embedder", "input": ["the sea", "the sea"]})
assert status == 200 and [len(one["embedding"]) for one in answer["data"]] == [4, 4], answer

# a storm of faults: every call has an answer, and the account is even afterwards
mock("/chaos", {"rateLimitRate": 0.15, "dropRate": 0.15, "malformedRate": 0.1, "disconnectRate": 0.1, "latencyMs": 5})
came = []
callers = [threading.Thread(target=lambda: came.extend(invoke("eco", "plain")[0] for _ in range(5))) for _ in range(8)]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
mock("/chaos", method="DELETE")
assert len(came) == 40 and set(came) <= {200, 429, 502}, came
assert account()[1] == 0
time.sleep(1.1)
asked()

# left alone after failures; the tier's other model answers meanwhile; a long 429 is handed on; a quota that is gone
for _ in range(6):
    status, problem, headers = invoke("eco", "server error")
assert (status, problem["code"]) == (429, "model_busy") and 1 <= int(headers["retry-after"]) <= 300, problem
before = len(asked())
assert invoke("eco", "plain")[0] == 429 and not asked(), "it is not asked at all"
assert before <= 5
for models in (["mock-large", "mock-model"], ["mock-model"]):  # the second time it is known to be closed
    status, answer, _ = invoke("high", "plain")
    assert (status, answer["output"]) == (200, "Hello from afar."), answer
    assert [body["model"] for _, body in asked()] == models
status, problem, headers = invoke("base", "slow down long")
assert (status, problem["code"], headers["retry-after"]) == (429, "model_busy", "45"), (status, problem)
assert account()[1] == 0
print("all is as it should be")
