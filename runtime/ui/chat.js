// The chat page. It speaks only the public API: REST to act, the canvas protocol to see.

const $ = (id) => document.getElementById(id);
const escape = (segment) => segment.replace(/~/g, "~0").replace(/\//g, "~1");

let token = new URLSearchParams(location.hash.slice(1)).get("token") || sessionStorage.getItem("token");
if (location.hash) history.replaceState(null, "", location.pathname); // the token must not stay in the address bar
if (token) sessionStorage.setItem("token", token);

let lifeform, canvas, socket, me;
let epoch = null, rev = 0, state = { users: {}, topics: {} }, partial = {}, topic = null;
let opened = null; // a topic that was made here and is not shown yet: it stays the one that is written to
let sending = false;

async function api(method, path, body) {
  const response = await fetch(path, {
    method,
    headers: { authorization: `Bearer ${token}`, ...(body ? { "content-type": "application/json" } : {}) },
    body: body && JSON.stringify(body),
  });
  const answer = response.status === 204 ? null : await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.detail || response.statusText), { status: response.status });
  return answer;
}

// RFC 6902 on keyed maps: add, replace, remove. Any failure is a reason to start again from a snapshot.
function patch(document, operations) {
  for (const { op, path, value } of operations) {
    const keys = path.split("/").slice(1).map((key) => key.replace(/~1/g, "/").replace(/~0/g, "~"));
    if (keys.some((key) => key === "__proto__" || key === "constructor" || key === "prototype")) throw new Error(`cannot ${op} ${path}`);
    const last = keys.pop();
    const parent = keys.reduce((at, key) => at[key], document);
    if (parent === undefined || (op !== "add" && !(last in parent))) throw new Error(`cannot ${op} ${path}`);
    if (op === "remove") delete parent[last]; else parent[last] = value;
  }
}

function connect() {
  const url = canvas.api.realtime_protocol.endpoint;
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${url}`, [canvas.api.realtime_protocol.subprotocol, `bearer.${token}`]);
  const mine = socket;
  socket.onopen = () => mine.send(JSON.stringify({ t: "hello", v: 1, token, resume: epoch ? { epoch, rev } : undefined, want: ["stream"] }));
  socket.onmessage = ({ data }) => { if (mine === socket) take(JSON.parse(data)); };
  socket.onclose = ({ code }) => {
    if (mine !== socket) return;
    $("link").textContent = code === 4401 ? "token refused" : "reconnecting";
    if (code === 4401) return enter("This token was taken back.");
    setTimeout(connect, 500 + Math.random() * 1000);
  };
}

function take(frame) {
  switch (frame.t) {
    case "hello": me = frame.you; break;
    case "reset": epoch = null; break;
    case "snapshot": ({ epoch, rev, state } = frame); partial = {}; draw(); break;
    case "live": if (epoch === null) epoch = frame.epoch; $("link").textContent = "live"; draw(); break;
    case "delta":
      if (frame.prev < rev) return; // seen already
      if (frame.prev > rev) return socket.close(); // a gap: resume from what we have
      try { patch(state, frame.patch); } catch { epoch = null; return socket.close(); }
      rev = frame.rev;
      if (frame.kind.startsWith("message.")) standing();
      draw();
      break;
    case "batch": frame.deltas.forEach(take); break;
    case "skip": rev = frame.to; break;
    case "stream": {
      const known = partial[frame.msg] ?? state.topics[frame.topic]?.messages[frame.msg]?.content ?? "";
      if (new TextEncoder().encode(known).length === frame.at_len) partial[frame.msg] = known + frame.text;
      draw();
      break;
    }
  }
}

const ordered = (map) => Object.values(map).sort((a, b) => (a.ord + a.id < b.ord + b.id ? -1 : 1));
const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  Object.assign(made, attributes);
  made.append(...children);
  return made;
};

function draw() {
  const topics = ordered(state.topics);
  if (opened && state.topics[opened]) opened = null;
  if (!(opened && topic === opened) && (!topic || !state.topics[topic])) topic = topics.at(-1)?.id ?? null;
  $("topics").replaceChildren(...topics.map((one) => {
    const button = element("button", { textContent: one.title, onclick: () => { topic = one.id; draw(); } });
    button.setAttribute("aria-current", one.id === topic);
    return element("li", {}, button);
  }));
  const list = $("messages");
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 80;
  list.replaceChildren(...(state.topics[topic] ? ordered(state.topics[topic].messages) : []).filter(says).map(shown));
  if (atEnd) list.scrollTop = list.scrollHeight;
}

// What was broken off before it said anything is nothing to look at.
function says(message) {
  return message.content !== "" || message.status !== "interrupted";
}

function shown(message) {
  const mine = message.sender === me;
  const revisions = Object.values(message.revisions);
  const who = state.users[message.sender];
  const name = message.sender === `lifeform:${lifeform.id}` ? lifeform.name : who?.name ?? message.sender;
  const chips = [name, new Date(message.at).toLocaleTimeString()];
  if (revisions.length) chips.push(message.status === "retracted" ? "retracted" : `edited ×${revisions.length}`);
  if (message.status === "interrupted") chips.push(message.interrupted_by?.reason ? `interrupted: ${message.interrupted_by.reason}` : "interrupted");
  const long = message.status === "streaming" ? [partial[message.id], message.content].sort((a, b) => (b?.length ?? 0) - (a?.length ?? 0))[0] : message.content;
  const row = element("li", { className: `${message.status} ${mine ? "mine" : ""}` },
    element("div", { className: "who" }, ...chips.map((text) => element("span", { textContent: text }))),
    element("div", { className: "text", textContent: message.status === "retracted" ? "taken back" : long }));
  if (revisions.length) {
    const past = element("details", {}, element("summary", { textContent: "history" }));
    past.append(...revisions.map((one) => element("div", { textContent: `${one.content}${one.reason ? ` (${one.reason})` : ""}` })));
    row.append(past);
  }
  if (mine && message.status === "final") {
    const path = `${canvas.api.rest_base_path}/topics/${topic}/messages/${message.id}`;
    row.append(element("div", { className: "acts" },
      element("button", { textContent: "amend", onclick: () => {
        const content = prompt("Say it differently", message.content);
        if (content) act(() => api("PATCH", path, { content, base_rev: message.rev }));
      } }),
      element("button", { textContent: "take back", onclick: () => act(() => api("DELETE", path)) })));
  }
  return row;
}

async function act(what) {
  try { return await what(); } catch (error) { $("link").textContent = error.message; }
}

async function standing() {
  const now = await act(() => api("GET", `/v1/lifeforms/${lifeform.id}`));
  if (!now) return;
  const hint = { created: "not started yet", stopped: "stopped", dormant: "resting: a top-up wakes it" }[now.status];
  $("standing").replaceChildren(`${hint ?? now.status} · ${now.nutrients.available.tokens.toLocaleString()} tokens`);
  if (now.status === "created" || now.status === "stopped") {
    $("standing").append(" ", element("button", { textContent: "Start", onclick: async () => { await act(() => api("POST", `/v1/lifeforms/${lifeform.id}/start`, {})); standing(); } }));
  }
}

async function choose(id) {
  lifeform = (await api("GET", "/v1/lifeforms")).lifeforms.find((one) => one.id === id);
  [canvas] = (await api("GET", `/v1/lifeforms/${id}/canvases`)).canvases;
  epoch = null; rev = 0; state = { users: {}, topics: {} }; topic = null;
  const old = socket;
  connect();
  old?.close();
  standing();
}

function enter(why = "") {
  $("why").textContent = why;
  $("enter").querySelector("input").value = "";
  $("enter").showModal();
  $("enter").onclose = () => {
    token = $("enter").querySelector("input").value.trim();
    sessionStorage.setItem("token", token);
    start();
  };
}

async function start() {
  if (!token) return enter();
  try {
    const { lifeforms } = await api("GET", "/v1/lifeforms");
    $("lifeforms").replaceChildren(...lifeforms.map((one) => element("option", { value: one.id, textContent: one.name })));
    $("lifeforms").onchange = ({ target }) => choose(target.value);
    if (lifeforms.length) await choose(lifeforms[0].id); else $("link").textContent = "no lifeform lives here yet";
  } catch (error) {
    if (error.status === 401) { sessionStorage.removeItem("token"); return enter("This token is not known here, or it was taken back."); }
    $("link").textContent = error.message;
  }
}

$("new-topic").onsubmit = async (event) => {
  event.preventDefault();
  const made = await act(() => api("POST", `${canvas.api.rest_base_path}/topics`, { title: event.target.title.value }));
  if (made) { topic = opened = made.id; event.target.reset(); draw(); }
};

$("say").onsubmit = async (event) => {
  event.preventDefault();
  const content = event.target.content.value;
  if (sending || !content.trim()) return;
  sending = true;
  try {
    if (!topic) {
      const made = await act(() => api("POST", `${canvas.api.rest_base_path}/topics`, { title: content.slice(0, 60) }));
      if (!made) return;
      topic = opened = made.id;
    }
    const said = await act(() => api("POST", `${canvas.api.rest_base_path}/topics/${escape(topic)}/messages`, { content }));
    // What was typed while it was sent stays.
    if (said && event.target.content.value === content) event.target.reset();
  } finally {
    sending = false;
  }
};

$("say").content.onkeydown = (event) => {
  // Who composes (Chinese, Japanese) ends a word by Enter, and not the message.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) { event.preventDefault(); $("say").requestSubmit(); }
};

start();
