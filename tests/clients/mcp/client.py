"""The official Python SDK of MCP against the daemon, over both of its transports: the same memory through each."""

import asyncio
import json
import os

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

TOOLS = {
    "execute_kip", "knowledge_search", "get_knowledge", "knowledge_save", "save_knowledge", "knowledge_update",
    "knowledge_batch_update", "knowledge_list", "knowledge_slim", "resource_save", "resource_get", "knowledgepulse_retrieve",
    "kp_search_knowledge", "kp_contribute_knowledge", "kp_validate_unit", "kp_search_skill", "kp_contribute_skill",
    "canvas_read", "canvas_post",
}


async def call(session, name, **arguments):
    answer = await session.call_tool(name, arguments)
    text = answer.content[0].text
    assert not answer.isError, f"{name}: {text}"
    return json.loads(text)


async def converse(read, write, way):
    async with ClientSession(read, write) as session:
        hello = await session.initialize()
        assert hello.serverInfo.name == "lifeformd", hello.serverInfo
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert TOOLS <= tools, f"missing {TOOLS - tools}"
        content = f"The {way} gate opens at high water."
        saved = await call(session, "knowledge_save", task=f"passing the {way} gate", content=content, types=["strategy"])
        found = await call(session, "knowledge_search", query=f"when does the {way} gate open", top_k=1)
        assert found["results"][0]["id"] == saved["knowledge_id"], found
        by_kip = await call(session, "execute_kip", command='FIND(?k.attributes.content) WHERE { ?k {type: "Knowledge", name: $id} }',
                            parameters={"id": saved["knowledge_id"]})
        assert by_kip["result"][0] == content, by_kip
        units = await call(session, "kp_search_knowledge", query=f"{way} gate", limit=1)
        unit = await call(session, "knowledgepulse_retrieve", id=units["units"][0]["id"], schema_version="1.0.0")
        assert unit["@type"] == "Pattern", unit
        skill = f"---\nname: {way}-gate\ndescription: How to pass the {way} gate\n---\nWait for high water.\n"
        made = await call(session, "kp_contribute_skill", skill_md_content=skill, visibility="private")
        assert made["id"] == f"kp:skill:{way}-gate:1.0.0", made
        skills = await call(session, "kp_search_skill", query=f"{way} gate")
        assert skills["skills"][0]["id"] == made["id"], skills
        bad = await session.call_tool("knowledge_save", {"task": "x", "content": "y", "types": ["poem"]})
        assert bad.isError and "user_profile" in bad.content[0].text, bad
        resources = [str(resource.uri) for resource in (await session.list_resources()).resources]
        card = await session.read_resource("lifeformd://kip/card")
        assert "lifeformd://kip/card" in resources and "FIND" in card.contents[0].text
        prompts = (await session.list_prompts()).prompts
        shown = await session.get_prompt(prompts[0].name)
        assert shown.messages, prompts


async def main():
    token, address = os.environ["LIFEFORMD_TOKEN"], os.environ["ADDRESS"]
    async with streamablehttp_client(f"{address}/mcp", headers={"Authorization": f"Bearer {token}"}) as (read, write, _):
        await converse(read, write, "north")
    server = StdioServerParameters(
        command=os.environ["DAEMON"], args=["mcp", "--listen", address.removeprefix("http://")],
        env={"LIFEFORMD_TOKEN": token, "PATH": os.environ["PATH"]},
    )
    async with stdio_client(server) as (read, write):
        await converse(read, write, "south")
    print("MCP: both transports, the Python SDK")


asyncio.run(main())
