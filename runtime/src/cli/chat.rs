//! `lifeformd chat`: a chat in the terminal, over the public WebSocket.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::{SinkExt, StreamExt};
use reqwest::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::client::Client;
use super::terminal::{self, Output};
use super::{say, say_error};
use crate::config::Config;

/// The number of messages of the topic that are shown at the beginning, and of those that the editor recalls.
const SHOWN: usize = 10;
const RECALLED: usize = 100;

const HELP: &str = "\
/help          this list
/history [N]   the last messages of this topic
/topics        the topics of this chat
/topic TITLE   goes on in another topic
/why           why it said what it said last
/quit          leaves, as an empty line does";

pub(super) async fn run(config: Config, lifeform: Option<String>, topic: Option<String>) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    let lifeform = client.lifeform(lifeform.as_deref()).await?;
    let id = lifeform["id"].as_str().unwrap_or_default().to_owned();
    let listed = client.ask(Method::GET, &format!("/v1/lifeforms/{id}/canvases"), None).await?;
    let api = listed["canvases"][0]["api"].clone();
    let base = api["rest_base_path"].as_str().context("this lifeform has no chat canvas")?.to_owned();
    let topic = choose_topic(&client, &base, topic).await?;

    let url = format!(
        "{}{}",
        client.base.replacen("http", "ws", 1),
        api["realtime_protocol"]["endpoint"].as_str().unwrap_or_default()
    );
    let mut request = url.into_client_request()?;
    request.headers_mut().insert("sec-websocket-protocol", "ailf.canvas.v1".parse()?);
    // A client that the daemon knows before the hello needs none of the places for those that it does not know.
    request.headers_mut().insert("authorization", format!("Bearer {}", client.token).parse()?);
    let (mut socket, _) =
        tokio_tungstenite::connect_async(request).await.context("the canvas cannot be subscribed to")?;
    socket.send(Message::text(json!({"t": "hello", "v": 1, "want": ["stream"]}).to_string())).await?;

    say("Say something; an empty line leaves, and /help lists more. You need not wait for an answer.");
    // A lifeform that is not running does not answer, so the command does not wait for it.
    let is_alive = !matches!(lifeform["status"].as_str(), Some("created" | "stopped" | "dormant"));
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
    match lifeform["status"].as_str() {
        Some("created") => say_error(&format!(
            "it was made and has not been started: what you say is kept, and answered after POST /v1/lifeforms/{id}/start"
        )),
        Some("stopped") => {
            say_error(&format!("it is stopped: what you say is kept, and answered after POST /v1/lifeforms/{id}/start"))
        }
        Some("dormant") => say_error(&format!(
            "it rests, since it cannot pay for an answer: a top-up (POST /v1/lifeforms/{id}/resources/transactions) wakes it"
        )),
        _ => {}
    }
    let health = client.ask(Method::GET, "/health", None).await.unwrap_or_default();
    match health["parts"]["models"].as_str() {
        Some("none") => say_error(
            "there is no model here: reminders are set all the same; say again what else you say once there is a model",
        ),
        Some("failing") => say_error("the model did not answer when it was last asked: lifeformd check says why"),
        _ => {}
    }
    let me = client.ask(Method::GET, "/v1/me", None).await?["principal"].as_str().unwrap_or_default().to_owned();
    let messages = said_in(&client, &base, &topic, RECALLED).await?;
    let own = messages.iter().filter(|message| message["sender"] == me.as_str());
    let own: Vec<String> = own.map(|message| text_of(message).to_owned()).collect();
    let (mut lines, mut output, _restored) = terminal::open(&own)?;
    if is_terminal {
        show_history(&mut output, &messages, SHOWN);
    }
    let mut screen = Screen {
        output,
        name: lifeform["name"].as_str().unwrap_or("it").to_owned(),
        author: format!("lifeform:{id}"),
        topic: topic.clone(),
        shown: HashMap::new(),
        has_line: false,
        asked: HashSet::new(),
        asks: false,
        decisions: HashSet::new(),
        answers: HashMap::new(),
        live: false,
    };
    let mut at_end = false;
    loop {
        tokio::select! {
            line = lines.next(), if !at_end => match line? {
                Some(line) if line.trim() == "/quit" => at_end = true,
                Some(line) if is_terminal && line.trim_start().starts_with('/') => {
                    let place = (&client, id.as_str(), base.as_str());
                    if let Err(error) = screen.obey(place, &line).await {
                        screen.output.line(&error.to_string());
                    }
                }
                Some(line) if !line.trim().is_empty() => {
                    let topic = screen.topic.clone();
                    let path = format!("{base}/topics/{topic}/messages");
                    let said = match client.ask(Method::POST, &path, Some(&json!({"content": line}))).await {
                        Ok(said) => said,
                        // A topic that was archived meanwhile takes no word, and there are others.
                        Err(error) if is_terminal => {
                            screen.output.line(&error.to_string());
                            continue;
                        }
                        Err(error) => return Err(error),
                    };
                    // A word below a question may decide it, and is then not answered by itself.
                    let waiting = if screen.asks { &mut screen.decisions } else { &mut screen.asked };
                    waiting.extend(said["id"].as_str().map(str::to_owned));
                    if is_terminal && is_alive {
                        let thinks = format!("({} is thinking …)", screen.name);
                        screen.output.line(&thinks);
                    }
                }
                _ => at_end = true,
            },
            // The terminal is set back to how it was before.
            () = ended() => return Ok(ExitCode::FAILURE),
            frame = socket.next() => match frame {
                Some(Ok(Message::Text(text))) => screen.take(&serde_json::from_str(&text)?)?,
                Some(Ok(Message::Close(frame))) => bail!("the daemon closed the canvas: {}", frame.map_or_else(|| "no reason given".into(), |frame| format!("{} {}", frame.code, frame.reason))),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error).context("the connection broke"),
                None => bail!("the daemon went away"),
            },
        }
        // Piped input ends before its answers arrive.
        let has_all = screen.asked.is_empty() && screen.decisions.is_empty();
        if at_end && (has_all || is_terminal || !is_alive) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Waits for a signal that ends the command.
async fn ended() {
    use tokio::signal::unix::{SignalKind, signal};
    match (signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
        (Ok(mut terminate), Ok(mut hangup)) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
        }
        _ => std::future::pending().await,
    }
}

/// Returns the topic with a given title or id, or a new one.
pub(super) async fn choose_topic(client: &Client, base: &str, title: Option<String>) -> anyhow::Result<String> {
    let title = title.unwrap_or_else(|| "terminal".to_owned());
    let listed = client.ask(Method::GET, &format!("{base}/topics"), None).await?;
    let is_meant = |topic: &&Value| topic["title"] == title.as_str() || topic["id"] == title.as_str();
    let known = listed["topics"].as_array().into_iter().flatten().rev().find(is_meant);
    if let Some(id) = known.and_then(|topic| topic["id"].as_str()) {
        return Ok(id.to_owned());
    }
    let made = client.ask(Method::POST, &format!("{base}/topics"), Some(&json!({"title": title}))).await?;
    Ok(made["id"].as_str().unwrap_or_default().to_owned())
}

/// Waits for the message of an author that answers another one, and returns it.
pub(super) async fn answer_to(client: &Client, messages: &str, said: &str, author: &str) -> anyhow::Result<Value> {
    const PAUSE: Duration = Duration::from_millis(300);
    const TRIES: usize = 400;
    for _ in 0..TRIES {
        let page = client.ask(Method::GET, &format!("{messages}?limit=20"), None).await?;
        let answers = |message: &&Value| {
            let is_to = |id: &Value| *id == *said;
            let is_answer =
                message["answers"].as_array().into_iter().flatten().any(is_to) || is_to(&message["reply_to"]);
            message["sender"] == author && message["status"] != "streaming" && is_answer
        };
        if let Some(answer) = page["messages"].as_array().into_iter().flatten().find(answers) {
            return Ok(answer.clone());
        }
        tokio::time::sleep(PAUSE).await;
    }
    bail!("there is no answer yet: what you said is kept, see the topic")
}

/// Returns the last messages of a topic, oldest first, without those that were taken back.
async fn said_in(client: &Client, base: &str, topic: &str, count: usize) -> anyhow::Result<Vec<Value>> {
    let path = format!("{base}/topics/{topic}/messages?limit={count}");
    let mut page = client.ask(Method::GET, &path, None).await?;
    let Value::Array(mut messages) = page["messages"].take() else { return Ok(Vec::new()) };
    messages.retain(|message| message["status"] != "retracted");
    Ok(messages)
}

fn text_of(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

/// Returns a text whose further lines are indented, so that none passes for a message of another.
fn within(text: &str) -> String {
    text.replace('\n', "\n    ")
}

/// Prints the last of some messages.
fn show_history(output: &mut Output, messages: &[Value], count: usize) {
    for message in messages.iter().skip(messages.len().saturating_sub(count)) {
        let sender = message["sender"].as_str().unwrap_or_default();
        output.line(&format!("{sender}: {}", within(text_of(message))));
    }
}

/// The terminal's view of one topic.
struct Screen {
    output: Output,
    name: String,
    author: String,
    topic: String,
    /// The shown text of each message.
    shown: HashMap<String, String>,
    /// `true` if the line of the terminal holds text of a message that goes on.
    has_line: bool,
    /// The messages that this terminal sent and that are not answered yet.
    asked: HashSet<String>,
    /// `true` if the lifeform's last message came whole, as questions do.
    asks: bool,
    /// The messages that were sent below such a message: the next message of the lifeform ends the wait for all of them.
    decisions: HashSet<String>,
    /// The messages that each message answers.
    answers: HashMap<String, Vec<String>>,
    live: bool,
}

impl Screen {
    /// Carries out a command of the person, such as `/history 20`. A word that is none prints the list.
    async fn obey(&mut self, (client, id, base): (&Client, &str, &str), line: &str) -> anyhow::Result<()> {
        let (command, argument) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let argument = argument.trim();
        match command {
            "/history" => {
                let count = argument.parse().unwrap_or(SHOWN).min(RECALLED);
                let messages = said_in(client, base, &self.topic, RECALLED).await?;
                show_history(&mut self.output, &messages, count);
            }
            "/topics" => {
                let listed = client.ask(Method::GET, &format!("{base}/topics"), None).await?;
                for topic in listed["topics"].as_array().into_iter().flatten() {
                    let sign = if topic["id"] == self.topic.as_str() { "*" } else { " " };
                    let title = topic["title"].as_str().unwrap_or_default().replace('\n', " ");
                    self.output.line(&format!("{sign} {title}"));
                }
            }
            "/topic" if !argument.is_empty() => {
                self.topic = choose_topic(client, base, Some(argument.to_owned())).await?;
                let messages = said_in(client, base, &self.topic, RECALLED).await?;
                show_history(&mut self.output, &messages, SHOWN);
            }
            "/why" => {
                let messages = said_in(client, base, &self.topic, RECALLED).await?;
                let answer = messages.iter().rev().find(|message| message["sender"] == self.author.as_str());
                match answer.and_then(|answer| answer["id"].as_str()) {
                    Some(message) => {
                        let message = format!("{base}/topics/{}/messages/{message}", self.topic);
                        let lines = super::why::of_message(client, id, &message).await?;
                        lines.iter().for_each(|line| self.output.line(line));
                    }
                    None => self.output.line("it has said nothing here"),
                }
            }
            _ => HELP.lines().for_each(|line| self.output.line(line)),
        }
        Ok(())
    }

    /// Shows a frame, and records the messages that it answers.
    fn take(&mut self, frame: &Value) -> anyhow::Result<()> {
        match frame["t"].as_str() {
            Some("error") => {
                bail!("{}", frame["message"].as_str().or(frame["code"].as_str()).unwrap_or("the daemon refused"))
            }
            Some("live") => self.live = true,
            Some("stream") if frame["topic"] == self.topic.as_str() => {
                let message = frame["msg"].as_str().unwrap_or_default();
                let shown = self.shown.get(message).map_or(0, String::len);
                if frame["at_len"].as_u64() == Some(shown as u64) {
                    self.add(message, frame["text"].as_str().unwrap_or_default());
                }
            }
            Some("delta") if self.live => self.delta(frame),
            Some("batch") if self.live => {
                frame["deltas"].as_array().into_iter().flatten().for_each(|delta| self.delta(delta));
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, message: &str, text: &str) {
        if !self.shown.contains_key(message) {
            // The text of another message may stand on the line.
            if std::mem::replace(&mut self.has_line, true) {
                self.output.line("");
            }
            let name = format!("{}: ", self.name);
            self.output.piece(&name);
        }
        self.output.piece(&within(text));
        self.shown.entry(message.to_owned()).or_default().push_str(text);
    }

    fn delta(&mut self, frame: &Value) {
        let by_lifeform = frame["actor"]["id"] == self.author.as_str();
        let is_over = matches!(frame["kind"].as_str(), Some("message.finish" | "message.append" | "message.interrupt"));
        let prefix = format!("/topics/{}/messages/", self.topic);
        let mut finished = None;
        for op in frame["patch"].as_array().into_iter().flatten() {
            let Some(rest) = op["path"].as_str().and_then(|path| path.strip_prefix(&prefix)) else { continue };
            let (message, member) = rest.split_once('/').unwrap_or((rest, ""));
            if by_lifeform && member.is_empty() && op["value"].is_object() {
                let all = op["value"]["answers"].as_array().into_iter().flatten().chain([&op["value"]["reply_to"]]);
                let all = all.filter_map(|id| id.as_str().map(str::to_owned)).collect();
                self.answers.insert(message.to_owned(), all);
            }
            // Another client may also interrupt an answer.
            if is_over && self.answers.contains_key(message) {
                finished = Some(message.to_owned());
            }
            let text = if member == "content" {
                op["value"].as_str()
            } else {
                op["value"]["content"].as_str().filter(|_| member.is_empty())
            };
            match (frame["kind"].as_str(), text) {
                (Some("message.amend"), Some(text)) => {
                    let line = format!("\n{} amends: {text}", frame["actor"]["id"].as_str().unwrap_or_default());
                    self.output.line(&line);
                }
                (_, Some(text)) if by_lifeform => {
                    let shown = self.shown.get(message).cloned().unwrap_or_default();
                    match text.strip_prefix(&shown) {
                        Some("") => {}
                        // The end was cut off.
                        None if shown.starts_with(text) => {}
                        Some(more) => self.add(message, more),
                        // The words before a tool call were replaced by the answer.
                        None => {
                            self.shown.remove(message);
                            self.output.line("");
                            self.add(message, text);
                        }
                    }
                }
                _ => {}
            }
            if member == "status" && op["value"] == "retracted" {
                let line = format!("\n{} takes a message back", frame["actor"]["id"].as_str().unwrap_or_default());
                self.output.line(&line);
            }
        }
        if let Some(message) = finished {
            self.has_line = false;
            self.asks = frame["kind"] == "message.append";
            self.decisions.clear();
            self.output.line("");
            for answered in self.answers.remove(&message).unwrap_or_default() {
                self.asked.remove(&answered);
            }
        }
    }
}
