// The official Node SDK of MCP against the daemon, over streamable HTTP.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const from = createRequire(`${process.env.PACKAGES}/node_modules/x.js`);
const load = async (name) => import(pathToFileURL(from.resolve(name)).href);
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");

const client = new Client({ name: "tests", version: "1.0.0" });
const headers = { Authorization: `Bearer ${process.env.LIFEFORMD_TOKEN}` };
await client.connect(new StreamableHTTPClientTransport(new URL(`${process.env.ADDRESS}/mcp`), { requestInit: { headers } }));
const call = async (name, args) => {
  const answer = await client.callTool({ name, arguments: args });
  assert(!answer.isError, `${name}: ${answer.content[0].text}`);
  return JSON.parse(answer.content[0].text);
};
const { tools } = await client.listTools();
assert(tools.some((tool) => tool.name === "knowledgepulse_retrieve" && tool.inputSchema.type === "object"));
const saved = await call("save_knowledge", { task: "passing the east gate", content: "It opens by night.", types: ["strategy"] });
const found = await call("get_knowledge", { query: "when does the east gate open", top_k: 1 });
assert.equal(found.results[0].id, saved.knowledge_id);
const stranger = new Client({ name: "stranger", version: "1.0.0" });
await assert.rejects(stranger.connect(new StreamableHTTPClientTransport(new URL(`${process.env.ADDRESS}/mcp`))));
await client.close();
console.log("MCP: streamable HTTP, the Node SDK");
