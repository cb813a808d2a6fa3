// Vercel's AI SDK at the OpenAI-compatible door. BASE and KEY say where; prints what held, or fails.
import assert from 'node:assert'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const packages = createRequire(`${process.env.PACKAGES}/package.json`)
const load = (name) => import(pathToFileURL(packages.resolve(name)))
const { embedMany, generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } = await load('ai')
const { createOpenAI } = await load('@ai-sdk/openai')

const door = createOpenAI({ baseURL: process.env.BASE, apiKey: process.env.KEY })
const [model, prompt] = [door.chat('economy'), 'Say hello.']
const once = { maxRetries: 0, temperature: 0 }

const whole = await generateText({ model, prompt, maxOutputTokens: 20, ...once })
assert(whole.text && whole.usage.outputTokens <= 20, JSON.stringify(whole.usage))
const streamed = streamText({ model, prompt, maxOutputTokens: 20, ...once })
let text = ''
for await (const part of streamed.textStream) text += part
assert.equal(text, whole.text)
assert((await streamed.usage).totalTokens > 0)

const schema = jsonSchema({ type: 'object', additionalProperties: false, required: ['city'], properties: { city: { type: 'string', maxLength: 20 } } })
const fitted = await generateObject({ model, schema, prompt: 'Which city is the capital of France?', ...once })
assert.deepEqual(Object.keys(fitted.object), ['city'])

let asked = 0
const weather = tool({
  description: 'tells the weather of a place',
  inputSchema: jsonSchema({ type: 'object', required: ['place'], additionalProperties: false, properties: { place: { type: 'string', maxLength: 30 } } }),
  execute: async () => { asked += 1; return 'sunny, 21 degrees' },
})
const told = await generateText({ model: door.chat('neuron:brief'), prompt: 'What is the weather in Faro?', tools: { weather }, stopWhen: stepCountIs(3), maxRetries: 0 })
assert(asked > 0 && told.steps.length > 1, JSON.stringify(told.steps.map((step) => step.finishReason)))

const { embeddings } = await embedMany({ model: door.embedding('embedder'), values: ['the sea', 'a tax form'], maxRetries: 0 })
assert(embeddings.length === 2 && embeddings[0].length > 100)

await assert.rejects(generateText({ model: door.chat('nobody'), prompt, maxRetries: 0 }), (error) => error.statusCode === 404 && /nobody/.test(error.message))
const version = JSON.parse(readFileSync(`${process.env.PACKAGES}/node_modules/ai/package.json`)).version
console.log(`ai ${version}: generateText, streamText, generateObject, tools in several steps, embedMany, errors`)
