"""LangChain's OpenAI classes at the OpenAI-compatible door. BASE and KEY say where; prints what held, or fails."""

import os
from importlib.metadata import version
from typing import Annotated

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, ConfigDict, Field

door = {"base_url": os.environ["BASE"], "api_key": os.environ["KEY"], "max_retries": 0}
# Current versions send the bound as max_completion_tokens.
model = ChatOpenAI(model="economy", max_tokens=4, temperature=0, **door)

whole = model.invoke("Say hello.")
assert whole.content and whole.usage_metadata["output_tokens"] <= 4, whole
assert whole.response_metadata["finish_reason"] == "length", whole
streamed = "".join(chunk.content for chunk in model.stream("Say hello."))
assert streamed == whole.content, (streamed, whole)


class City(BaseModel):
    """A city."""

    model_config = ConfigDict(extra="forbid")
    city: str = Field(max_length=20)


fitted = ChatOpenAI(model="economy", temperature=0, **door).with_structured_output(City, method="json_schema")
assert isinstance(fitted.invoke("Which city is the capital of France?"), City)


@tool
def weather(place: Annotated[str, Field(max_length=30)]) -> str:
    """Tells the weather of a place."""
    return f"sunny in {place}, 21 degrees"


bound = ChatOpenAI(model="neuron:brief", **door).bind_tools([weather], strict=True)
asked = [("user", "What is the weather in Faro?")]
called = bound.invoke(asked)
assert called.tool_calls[0]["name"] == "weather" and set(called.tool_calls[0]["args"]) == {"place"}, called
told = bound.invoke([*asked, called, weather.invoke(called.tool_calls[0])])
assert told.content or told.tool_calls, told

# By default LangChain sends token ids, which the door refuses: it is told to send text.
embeddings = OpenAIEmbeddings(model="embedder", check_embedding_ctx_length=False, **door)
one, two, three = embeddings.embed_documents(["the sea", "the ocean", "a tax form"])
likeness = lambda a, b: sum(x * y for x, y in zip(a, b))
assert likeness(one, two) > likeness(one, three), "alike is alike"
print(f"langchain-openai {version('langchain-openai')}: chat, bound, stream, schema, tools, embeddings")
