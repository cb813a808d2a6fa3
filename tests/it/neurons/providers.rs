//! Providers as they really are (MISSION N5): every fault over a real socket comes to a named error, is paid as far as
//! it may have been, and leaves the next call whole.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use neurons::llm::{
    ChatMessage, ChatRequest, Class, Delta, Endpoint, Limits, LlmProvider, Model, OpenAi, Price, Transport, paid,
};
use neurons::{CallOptions, HOUSE, LlmError, Models, NeuronSpec, Neurons, Stop, Tier};
use nexus::Nexus;
use serde_json::{Value, json};
use store::ledger::{AccountOp, Amount};
use store::{Batch, ManualClock, Origin, Store, Wants};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// What a server does with one request.
#[derive(Clone)]
enum Does {
    /// Writes this and closes.
    Writes(String),
    /// Writes this and then nothing, and stays.
    Stalls(String),
    /// Writes this and resets the connection.
    Resets(String),
}

/// A server that does one thing after the other, the last one for ever, and counts.
async fn server(does: impl IntoIterator<Item = Does>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (mut does, asked): (VecDeque<Does>, _) = (does.into_iter().collect(), Arc::new(Mutex::new(Vec::new())));
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let next = if does.len() > 1 { does.pop_front().unwrap() } else { does[0].clone() };
            let seen = seen.clone();
            tokio::spawn(async move {
                let mut socket = socket;
                let body = read(&mut socket).await;
                seen.lock().unwrap().push(body);
                match next {
                    Does::Writes(text) => socket.write_all(text.as_bytes()).await.unwrap_or_default(),
                    Does::Stalls(text) => {
                        socket.write_all(text.as_bytes()).await.unwrap_or_default();
                        std::future::pending::<()>().await;
                    }
                    Does::Resets(text) => {
                        socket.write_all(text.as_bytes()).await.unwrap_or_default();
                        let socket = socket.into_std().unwrap();
                        let _ = socket2_reset(&socket);
                    }
                }
            });
        }
    });
    (url, asked)
}

/// Closing with unread input or zero linger resets; dropping at once after a write is near enough and portable.
fn socket2_reset(socket: &std::net::TcpStream) -> std::io::Result<()> {
    socket.shutdown(std::net::Shutdown::Both)
}

/// One request: the body by its length.
async fn read(socket: &mut TcpStream) -> String {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_lowercase().strip_prefix("content-length:").map(|it| it.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return body.to_owned();
            }
        }
        let read = socket.read(&mut buffer).await.unwrap();
        if read == 0 {
            return text;
        }
        bytes.extend_from_slice(&buffer[..read]);
    }
}

fn answer(status: &str, headers: &str, kind: &str, body: &str) -> Does {
    Does::Writes(format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    ))
}

fn json_answer(status: &str, body: &Value) -> Does {
    answer(status, "", "application/json", &body.to_string())
}

fn said(text: &str) -> Does {
    json_answer(
        "200 OK",
        &json!({
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        }),
    )
}

fn chunk(delta: Value, finish: Option<&str>) -> String {
    format!("data: {}\n\n", json!({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
}

fn stream(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}")
}

fn provider(url: &str) -> OpenAi {
    let endpoint = Endpoint::new("p", Transport::Http(reqwest::Client::new()), 8, Duration::from_secs(5));
    OpenAi::new("p", url, "key", endpoint).unwrap().with_idle(Duration::from_millis(200))
}

fn asks() -> ChatRequest {
    ChatRequest { model: "m".into(), messages: vec![ChatMessage::text("user", "hello")], ..ChatRequest::default() }
}

fn class(came: &Result<String, LlmError>) -> &str {
    match came {
        Ok(text) => text,
        Err(LlmError::Busy { .. }) => "busy",
        Err(LlmError::Exhausted { .. }) => "exhausted",
        Err(LlmError::Refused { .. }) => "refused",
        Err(LlmError::Broken { .. }) => "broken",
        Err(LlmError::Unreachable { .. }) => "unreachable",
        Err(LlmError::Unheard { .. }) => "unheard",
        Err(LlmError::Unavailable(_)) => "unavailable",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_whole_answer_has_its_name() {
    let html = "<html><body>502 Bad Gateway</body></html>";
    let cases: Vec<(&str, Vec<Does>, &str, usize)> = vec![
        (
            "429 with seconds, then an answer",
            vec![
                answer(
                    "429 Too Many Requests",
                    "retry-after: 0\r\n",
                    "application/json",
                    "{\"error\":{\"code\":429,\"message\":\"slow\"}}",
                ),
                said("ok"),
            ],
            "ok",
            2,
        ),
        (
            "429 with milliseconds",
            vec![answer("429 Too Many Requests", "retry-after-ms: 1\r\n", "text/plain", "slow"), said("ok")],
            "ok",
            2,
        ),
        (
            "429 with a date that is past",
            vec![
                answer("429 Too Many Requests", "retry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "text/plain", ""),
                said("ok"),
            ],
            "ok",
            2,
        ),
        (
            "429 with nonsense",
            vec![answer("429 Too Many Requests", "retry-after: soon\r\n", "text/plain", ""), said("ok")],
            "ok",
            2,
        ),
        ("429 for ever", vec![answer("429 Too Many Requests", "retry-after: 0\r\n", "text/plain", "")], "busy", 3),
        (
            "429 for too long",
            vec![answer("429 Too Many Requests", "retry-after: 3600\r\n", "text/plain", "")],
            "busy",
            1,
        ),
        (
            "quota",
            vec![json_answer(
                "429 Too Many Requests",
                &json!({"error": {"code": "insufficient_quota", "message": "pay"}}),
            )],
            "exhausted",
            1,
        ),
        ("402", vec![json_answer("402 Payment Required", &json!({"detail": "pay"}))], "exhausted", 1),
        ("503 then an answer", vec![answer("503 Service Unavailable", "", "text/html", html), said("ok")], "ok", 2),
        (
            "500",
            vec![json_answer("500 Internal Server Error", &json!({"error": "an error that is text"}))],
            "broken",
            1,
        ),
        ("502 with HTML", vec![answer("502 Bad Gateway", "", "text/html", html)], "broken", 1),
        (
            "an error as a list with a numeric code",
            vec![json_answer("400 Bad Request", &json!([{"error": {"code": 400, "message": "no"}}]))],
            "refused",
            1,
        ),
        (
            "401",
            vec![json_answer("401 Unauthorized", &json!({"error": {"message": "key", "code": null}}))],
            "refused",
            1,
        ),
        (
            "200 with an error",
            vec![json_answer("200 OK", &json!({"error": {"message": "overloaded", "code": 502}}))],
            "broken",
            1,
        ),
        ("200 with HTML", vec![answer("200 OK", "", "text/html", html)], "broken", 1),
        (
            "200 with half of its JSON",
            vec![answer("200 OK", "", "application/json", "{\"choices\":[{\"mess")],
            "broken",
            1,
        ),
        ("200 with no choices", vec![json_answer("200 OK", &json!({"choices": []}))], "broken", 1),
        (
            "200 with no message",
            vec![json_answer("200 OK", &json!({"choices": [{"finish_reason": "stop"}]}))],
            "broken",
            1,
        ),
        (
            "an unknown finish reason",
            vec![json_answer(
                "200 OK",
                &json!({
                    "choices": [{"message": {"content": "ok"}, "finish_reason": "eos_token"}],
                    "usage": {"prompt_tokens": null},
                }),
            )],
            "ok",
            1,
        ),
        (
            "a body shorter than it says",
            vec![Does::Resets(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"cho".into(),
            )],
            "broken",
            1,
        ),
        ("closed without a word", vec![Does::Resets(String::new())], "broken", 1),
    ];
    for (name, does, wanted, times) in cases {
        let (url, asked) = server(does).await;
        let came = provider(&url).chat(asks(), None).await.map(|reply| reply.text);
        assert_eq!(class(&came), wanted, "{name}: {came:?}");
        assert_eq!(asked.lock().unwrap().len(), times, "{name}");
    }
    let closed = { TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap() };
    let came = provider(&format!("http://{closed}/v1")).chat(asks(), None).await.map(|reply| reply.text);
    assert_eq!(class(&came), "unreachable");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_a_stream_has_its_name() {
    let (he, llo) = (chunk(json!({"content": "he"}), None), chunk(json!({"content": "llo"}), None));
    let end = chunk(json!({}), Some("stop"));
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";
    let done = "data: [DONE]\n\n";
    let cases: Vec<(&str, Does, &str)> = vec![
        ("whole", Does::Writes(stream(&format!("{he}{llo}{end}{usage}{done}"))), "hello"),
        ("without [DONE]", Does::Writes(stream(&format!("{he}{llo}{end}"))), "hello"),
        (
            "with comments and odd lines",
            Does::Writes(stream(&format!(": ping\n\n{he}event: x\nretry: 3\n{llo}{end}{done}"))),
            "hello",
        ),
        (
            "with an unknown finish reason",
            Does::Writes(stream(&format!("{he}{llo}{}", chunk(json!({}), Some("eos"))))),
            "hello",
        ),
        ("cut in the middle", Does::Writes(stream(&he)), "broken"),
        ("[DONE] without an end", Does::Writes(stream(&format!("{he}{done}"))), "broken"),
        ("a reset", Does::Resets(stream(&he)), "broken"),
        ("a stall", Does::Stalls(stream(&he)), "broken"),
        ("a malformed chunk", Does::Writes(stream(&format!("{he}data: {{\"choices\": [oops\n\n{end}"))), "broken"),
        (
            "an error inside",
            Does::Writes(stream(&format!(
                "{he}data: {}\n\n",
                json!({"error": {"message": "overloaded", "code": 529}})
            ))),
            "broken",
        ),
        ("HTML instead", answer("200 OK", "", "text/html", "<html></html>"), "broken"),
    ];
    for (name, does, wanted) in cases {
        let (url, _) = server([does]).await;
        let (deltas, mut pieces) = mpsc::channel(64);
        let came = provider(&url).chat(asks(), Some(deltas)).await;
        let text = came.as_ref().map(|reply| reply.text.clone()).map_err(Clone::clone);
        assert_eq!(class(&text), wanted, "{name}: {came:?}");
        let mut streamed = String::new();
        while let Some(Delta::Text(piece)) = pieces.recv().await {
            streamed.push_str(&piece);
        }
        assert!("hello".starts_with(&streamed), "{name}");
        if name == "whole" {
            let usage = came.unwrap().usage.unwrap();
            assert_eq!((usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens), (7, 2, 4));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_does_not_end_is_cut_at_what_it_may_have() {
    let piece = chunk(json!({"content": "a".repeat(8 << 10)}), None);
    let (url, _) =
        server([Does::Writes(stream(&format!("{}{}", piece.repeat(40), chunk(json!({}), Some("stop")))))]).await;
    let (deltas, mut pieces) = mpsc::channel(64);
    let asked = ChatRequest { max_tokens: Some(16), ..asks() };
    let came = provider(&url).chat(asked, Some(deltas)).await.map(|reply| reply.text.len().to_string());
    assert!(matches!(&came, Err(LlmError::Broken { message, .. }) if message.contains("longer than")), "{came:?}");
    let mut streamed = 0;
    while let Some(Delta::Text(piece)) = pieces.recv().await {
        streamed += piece.len();
    }
    assert!(streamed < 100 << 10, "{streamed}");
    // As long as it may be, it is whole.
    let (deltas, _pieces) = mpsc::channel(64);
    let reply = provider(&url).chat(asks(), Some(deltas)).await.unwrap();
    assert_eq!(reply.text.len(), 40 * (8 << 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_joins_tool_call_pieces_despite_repeated_names() {
    let piece = |index: usize, id: &str, name: &str, arguments: &str| {
        chunk(
            json!({
                "tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}],
            }),
            None,
        )
    };
    let body = [
        piece(0, "a", "look", ""),
        piece(1, "b", "hear", "{"),
        piece(0, "a", "look", "{\"at\":"),
        piece(0, "", "", "1}"),
        piece(1, "b", "hear", "}"),
        chunk(json!({}), Some("tool_calls")),
    ]
    .concat();
    let (url, _) = server([Does::Writes(stream(&body))]).await;
    let (deltas, _pieces) = mpsc::channel(64);
    let reply = provider(&url).chat(asks(), Some(deltas)).await.unwrap();
    let calls: Vec<(&str, &str, &str)> =
        reply.tool_calls.iter().map(|call| (&*call.id, &*call.function.name, &*call.function.arguments)).collect();
    assert_eq!(calls, [("a", "look", "{\"at\":1}"), ("b", "hear", "{}")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_stops_calling_a_model_that_keeps_failing() {
    let (url, asked) = server([json_answer("500 Internal Server Error", &json!({}))]).await;
    let provider = provider(&url);
    for _ in 0..5 {
        assert_eq!(class(&provider.chat(asks(), None).await.map(|reply| reply.text)), "broken");
    }
    let LlmError::Busy { retry_after: Some(left), message, .. } = provider.chat(asks(), None).await.unwrap_err() else {
        panic!()
    };
    assert!(left <= Duration::from_secs(5) && message.contains("left alone"), "{message}");
    assert_eq!(asked.lock().unwrap().len(), 5);
    let other = ChatRequest { model: "other".into(), ..asks() };
    assert_eq!(class(&provider.chat(other, None).await.map(|reply| reply.text)), "broken", "another model is asked");
}

/// Asks as a paid call does, when its turn has come.
async fn in_turn(provider: &OpenAi) -> Result<String, LlmError> {
    let wants = Wants { class: Class::Invocation, who: "user:ada".into(), is_bound: false };
    let _turn = provider.turn(10, wants).await?;
    provider.chat(asks(), None).await.map(|reply| reply.text)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_call_is_asked_to_wait_all_calls_wait() {
    let (url, asked) =
        server([answer("429 Too Many Requests", "retry-after: 3600\r\n", "text/plain", ""), said("ok")]).await;
    let provider = provider(&url);
    assert_eq!(class(&in_turn(&provider).await), "busy");
    for _ in 0..3 {
        assert_eq!(class(&in_turn(&provider).await), "busy");
    }
    assert_eq!(asked.lock().unwrap().len(), 1, "nobody else asked in vain");
    let limits = Limits::per_minute(std::num::NonZeroU32::new(1), None);
    let (url, asked) = server([said("ok")]).await;
    let endpoint =
        Endpoint::new("p", Transport::Http(reqwest::Client::new()), 8, Duration::from_secs(5)).with_limits(limits);
    let bounded = OpenAi::new("p", &url, "key", endpoint).unwrap();
    assert_eq!(class(&in_turn(&bounded).await), "ok");
    assert_eq!(class(&in_turn(&bounded).await), "busy", "a minute is too long to wait");
    assert_eq!(asked.lock().unwrap().len(), 1);
}

async fn thinking(models: Models) -> (Store, Neurons) {
    let store = Store::in_memory(Arc::new(ManualClock::default())).await;
    let open = AccountOp::Open(Amount { tokens: 1_000_000, micro_usd: 1_000_000 });
    store.commit(Batch::new(&Origin::system("test")).account(HOUSE, open, "house")).await.unwrap();
    let neurons = Neurons::open(store.clone(), tests::tools_of(Nexus::new(store.clone())), models).await.unwrap();
    (store, neurons)
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_beyond_the_bound_of_a_call_is_charged_up_to_the_bound() {
    let reports = |usage: Value| {
        let choices = json!([{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]);
        json_answer("200 OK", &json!({"choices": choices, "usage": usage}))
    };
    let huge = json!({"prompt_tokens": 2_147_483_648_u64, "completion_tokens": 9_999_999, "total_tokens": 1});
    let (url, _) = server([reports(huge)]).await;
    let model = Model {
        provider: Arc::new(provider(&url)),
        name: "m".into(),
        price: Price { input: 1_000_000, output: 1_000_000, cached: None },
        context_tokens: 4096,
        small: false,
        tools: false,
    };
    let (store, neurons) = thinking(Models::new([(Tier::Standard, model)].into())).await;
    let spec: NeuronSpec = serde_json::from_value(json!({"output_tokens_max": 100})).unwrap();
    let (origin, account) = (Origin::system("test"), HOUSE.into());
    let thought = neurons.think(&origin, &account, &"inv".into(), &spec, &json!("hello"), CallOptions::default()).await;
    assert!(matches!(thought.unwrap().stop, Stop::Completed(_)));
    let account = store.account(HOUSE).await.unwrap().unwrap();
    assert!(account.spent.micro_usd > 0 && account.spent.micro_usd <= 4096 + 100, "{:?}", account.spent);
    let calls = store.entries(&paid::calls_stream(HOUSE), 0, 100).await.unwrap();
    let answered = calls.iter().find(|entry| &*entry.kind == "answered").unwrap().to_json();
    assert_eq!(answered["data"]["usage_reported"]["prompt_tokens"], 2_147_483_648_u64, "{answered}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_of_a_provider_is_not_followed() {
    let (elsewhere, asked) = server([said("from elsewhere")]).await;
    let (url, _) =
        server([answer("307 Temporary Redirect", &format!("location: {elsewhere}\r\n"), "text/plain", "")]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lifeformd.toml");
    let of_tier = |tier| format!("[tiers.{tier}]\nprovider = \"p\"\nmodel = \"m\"\n");
    let tiers = ["economy", "standard", "high"].map(of_tier).concat();
    std::fs::write(&file, format!("[providers.p]\nbase_url = \"{url}\"\n{tiers}")).unwrap();
    let config = runtime::Config::load(Some(&file), &[]).unwrap();
    let models = runtime::models::models(&config, runtime::models::Local::default()).unwrap();
    let redirected = models.pick(Tier::Standard).unwrap().provider.chat(asks(), None).await;
    assert!(redirected.is_err(), "{redirected:?}");
    assert!(asked.lock().unwrap().is_empty(), "the key went to another server");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_for_one_participant_answers_another() {
    let (url, asked) = server([json_answer("500 Internal Server Error", &json!({}))]).await;
    let failing = provider(&url);
    let of = |caller: &str| ChatRequest { caller: Some(caller.into()), ..asks() };
    for _ in 0..5 {
        assert!(matches!(failing.chat(of("user:eve"), None).await, Err(LlmError::Broken { .. })));
    }
    assert!(matches!(failing.chat(of("user:eve"), None).await, Err(LlmError::Busy { .. })), "it pauses for her");
    assert_eq!(asked.lock().unwrap().len(), 5);
    assert!(matches!(failing.chat(of("user:ada"), None).await, Err(LlmError::Broken { .. })), "another is asked for");
    assert_eq!(asked.lock().unwrap().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_reply_to_one_participant_delays_no_other() {
    let busy = || answer("503 Service Unavailable", "retry-after: 25\r\n", "text/plain", "");
    let (url, asked) = server([busy(), busy()]).await;
    let provider = provider(&url);
    let of = |caller: &str| ChatRequest { caller: Some(caller.into()), ..asks() };
    let admits = |who: &str| {
        let wants = store::Wants { class: neurons::llm::Class::Invocation, who: who.into(), is_bound: true };
        futures::FutureExt::now_or_never(provider.turn(10, wants)).is_some()
    };
    assert!(matches!(provider.chat(of("user:eve"), None).await, Err(LlmError::Busy { .. })), "it is refused at once");
    assert_eq!((admits("user:eve"), admits("user:ada"), asked.lock().unwrap().len()), (false, true, 1));
    // It says so to another, too: now it means all.
    assert!(matches!(provider.chat(of("user:ada"), None).await, Err(LlmError::Busy { .. })));
    assert!(!admits("user:bob"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_refuses_an_answer_far_over_the_requested_length() {
    let (url, _) = server([said(&"z".repeat(1 << 20)), said(&"z".repeat(20_000))]).await;
    let provider = provider(&url);
    let asks = || ChatRequest { max_tokens: Some(512), ..asks() };
    assert!(matches!(provider.chat(asks(), None).await, Err(LlmError::Broken { .. })));
    assert_eq!(provider.chat(asks(), None).await.unwrap().text.len(), 20_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fallback_model_answers_and_each_model_is_paid_its_price() {
    let (broken, _) = server([json_answer("500 Internal Server Error", &json!({}))]).await;
    let (empty, _) = server([json_answer("402 Payment Required", &json!({}))]).await;
    let (good, asked) = server([said("from the third")]).await;
    let model = |url: &str, output: u64| Model {
        provider: Arc::new(provider(url)),
        name: "m".into(),
        price: Price { input: 0, output, cached: None },
        context_tokens: 4096,
        small: false,
        tools: false,
    };
    let models = Models::new([(Tier::Standard, model(&broken, 1_000_000))].into())
        .with_fall_back(Tier::Standard, model(&empty, 1_000_000))
        .with_fall_back(Tier::Standard, model(&good, 2_000_000));
    let (store, neurons) = thinking(models).await;
    let spec: NeuronSpec = serde_json::from_value(json!({"output_tokens_max": 100})).unwrap();
    let origin = Origin::system("test");
    let thought =
        neurons.think(&origin, &HOUSE.into(), &"inv".into(), &spec, &json!("hello"), CallOptions::default()).await;
    let Stop::Completed(completed) = thought.unwrap().stop else { panic!() };
    assert_eq!(completed.output, "from the third");
    // Unknown usage of the first is charged in full, the second did nothing, the third says what it used.
    assert_eq!(store.account(HOUSE).await.unwrap().unwrap().spent.micro_usd, 100 + 10);
    assert!(store.account(HOUSE).await.unwrap().unwrap().holds.is_empty());
    let calls = store.entries(&paid::calls_stream(HOUSE), 0, 100).await.unwrap();
    let kinds: Vec<&str> = calls.iter().map(|entry| &*entry.kind).collect();
    assert_eq!(kinds, ["sent", "failed", "sent", "failed", "sent", "answered"]);
    assert_eq!(asked.lock().unwrap().len(), 1);

    // One that may not be asked now is not asked; what was said is kept all the same.
    let limits = Limits::per_minute(std::num::NonZeroU32::new(1), None);
    let (quick, _) = server([said("quick")]).await;
    let endpoint =
        Endpoint::new("p", Transport::Http(reqwest::Client::new()), 8, Duration::from_secs(5)).with_limits(limits);
    let bounded = Model { provider: Arc::new(OpenAi::new("p", &quick, "key", endpoint).unwrap()), ..model(&quick, 0) };
    let (second, _) = server([said("second")]).await;
    let models = Models::new([(Tier::Standard, bounded)].into()).with_fall_back(Tier::Standard, model(&second, 0));
    let (store, neurons) = thinking(models).await;
    for (name, says) in [("inv_1", "quick"), ("inv_2", "second")] {
        let (account, name, hello) = (HOUSE.into(), name.into(), json!("hello"));
        let thought = neurons.think(&origin, &account, &name, &spec, &hello, CallOptions::default()).await;
        let Stop::Completed(completed) = thought.unwrap().stop else { panic!() };
        assert_eq!(completed.output, says);
        let kept = neurons::conversation::messages(&store, &name).await.unwrap();
        let kept: Vec<&str> = kept.iter().map(|message| message["content"].as_str().unwrap()).collect();
        assert_eq!(kept, ["hello", says], "{name}");
    }

    // A request that is itself at fault is not taken elsewhere.
    let (refusing, _) = server([json_answer("400 Bad Request", &json!({"error": {"message": "too long"}}))]).await;
    let (other, asked) = server([said("never")]).await;
    let models =
        Models::new([(Tier::Standard, model(&refusing, 0))].into()).with_fall_back(Tier::Standard, model(&other, 0));
    let (_, neurons) = thinking(models).await;
    let thought =
        neurons.think(&origin, &HOUSE.into(), &"inv".into(), &spec, &json!("hello"), CallOptions::default()).await;
    assert!(thought.unwrap_err().to_string().contains("too long"));
    assert!(asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_configured_rate_limit_bounds_the_turns_of_a_provider() {
    for bound in ["requests_a_minute = 1", "tokens_a_minute = 100"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lifeformd.toml");
        let tiers =
            ["economy", "standard", "high"].map(|tier| format!("[tiers.{tier}]\nprovider = \"p\"\nmodel = \"m\"\n"));
        let provider = format!("[providers.p]\nbase_url = \"http://127.0.0.1:9/v1\"\n{bound}\n");
        let local = "[models]\nembedded = \"none\"\nembedder = \"none\"\n";
        std::fs::write(&file, format!("{local}{provider}{}", tiers.concat())).unwrap();
        let config = runtime::Config::load(Some(&file), &[]).unwrap();
        let models = runtime::models::models(&config, runtime::models::Local::default()).unwrap();
        let provider = models.pick(Tier::Standard).unwrap().provider.clone();
        let wants = || Wants { class: Class::Invocation, who: "user:ada".into(), is_bound: true };
        drop(provider.turn(4_000, wants()).await.unwrap());
        let second = provider.turn(4_000, wants()).await;
        assert!(matches!(second, Err(LlmError::Busy { .. })), "{bound}: {:?}", second.err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_drips_ends_at_its_number_of_pieces() {
    let body = format!("{}{}", chunk(json!({"content": "a"}), None).repeat(200), chunk(json!({}), Some("stop")));
    let (url, _) = server([Does::Writes(stream(&body))]).await;
    let (deltas, _pieces) = mpsc::channel(256);
    let asked = ChatRequest { max_tokens: Some(8), ..asks() };
    let came = provider(&url).chat(asked, Some(deltas)).await.map(|reply| reply.text.len().to_string());
    assert!(matches!(&came, Err(LlmError::Broken { message, .. }) if message.contains("pieces")), "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_drips_ends_at_its_time() {
    let (url, _) = server([Does::Stalls(stream(&chunk(json!({"content": "a"}), None)))]).await;
    let (deltas, _pieces) = mpsc::channel(256);
    let came = provider(&url).with_whole(Duration::from_millis(50)).chat(asks(), Some(deltas)).await;
    let came = came.map(|reply| reply.text);
    assert!(matches!(&came, Err(LlmError::Broken { message, .. }) if message.contains("took longer")), "{came:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_only_the_provider_knows_reach_it() {
    let (url, asked) = server([Does::Writes(stream(&chunk(json!({"content": "hi"}), Some("stop"))))]).await;
    let extra = json!({"top_p": 0.5, "reasoning_effort": "low", "parallel_tool_calls": false});
    let request = ChatRequest { extra: extra.as_object().unwrap().clone(), ..asks() };
    let (deltas, _pieces) = mpsc::channel(64);
    provider(&url).chat(request, Some(deltas)).await.unwrap();
    let sent: Value = serde_json::from_str(&asked.lock().unwrap()[0]).unwrap();
    for (member, value) in extra.as_object().unwrap() {
        assert_eq!(&sent[member], value, "{sent}");
    }
}
