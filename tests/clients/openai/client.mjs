// The official Node client at the OpenAI-compatible door. BASE and KEY say where; prints what held, or fails.
import assert from "node:assert";
import { createRequire } from "node:module";

// The package lies where the caller of this script put it.
const require = createRequire(process.env.PACKAGES + "/package.json");
const OpenAI = require("openai");
const client = new OpenAI({ baseURL: process.env.BASE, apiKey: process.env.KEY, maxRetries: 0 });

const names = [];
for await (const model of client.models.list()) names.push(model.id);
assert(names.includes("economy") && names.includes("neuron:brief"), names.join());

const messages = [{ role: "user", content: "Say hello." }];
const whole = await client.chat.completions.create({ model: "economy", messages, max_tokens: 20, temperature: 0 });
assert(whole.choices[0].message.content && whole.usage.total_tokens > 0);

const stream = await client.chat.completions.create({ model: "economy", messages, max_tokens: 20, temperature: 0, stream: true });
let streamed = "";
for await (const chunk of stream) streamed += chunk.choices[0]?.delta?.content ?? "";
assert.equal(streamed, whole.choices[0].message.content);

const parameters = { type: "object", required: ["place"], additionalProperties: false, properties: { place: { type: "string", maxLength: 30 } } };
const tools = [{ type: "function", function: { name: "weather", description: "tells the weather of a place", parameters } }];
const called = await client.chat.completions.create({ model: "neuron:brief", messages: [{ role: "user", content: "What is the weather in Faro?" }], tools, stream: true });
let name = "";
let reason = null;
for await (const chunk of called) {
  name += chunk.choices[0]?.delta?.tool_calls?.[0]?.function?.name ?? "";
  reason = chunk.choices[0]?.finish_reason ?? reason;
}
assert.deepEqual([name, reason], ["weather", "tool_calls"]);

// The client asks for base64 unless told otherwise.
const vectors = await client.embeddings.create({ model: "embedder", input: ["the sea"] });
assert(vectors.data[0].embedding.length > 100 && Number.isFinite(vectors.data[0].embedding[0]));

await assert.rejects(client.chat.completions.create({ model: "nobody", messages }), (error) => error.status === 404);
console.log(`openai-node: models, chat, stream, tools, embeddings, errors`);
