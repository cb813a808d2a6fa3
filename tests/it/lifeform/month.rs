//! A month of talk on a clock that is moved: what the mind knew, asked and forgot, what each night changed and cost, and a night
//! that is taken back. Run with `--nocapture` it prints the table of `benches/life/month.md`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, again, honest, text_of};

use super::goals::{born, live};

const HOUR_MS: i64 = 3_600_000;
const DAYS: usize = 30;
/// The number of messages that people say on a day.
const A_DAY: usize = 6;

/// The messages of people, each with its theme, in the order of the file.
static SAID: LazyLock<Vec<(String, String, Option<String>)>> = LazyLock::new(|| {
    let lines = include_str!("../../../benches/know/domains.jsonl").lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(|line| line["set"] == "en");
    // A word to another person has no answer.
    let is_for_another =
        |line: &Value| ["Ada,", "Ben,", "Cleo,"].iter().any(|name| line["text"].as_str().unwrap().starts_with(name));
    let lines = lines.filter(move |line| !is_for_another(line));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines.map(|line| (text(&line["who"]), text(&line["text"]), line["theme"].as_str().map(str::to_owned))).collect()
});

/// A mind that reads the theme of a statement from the file, and asks about an exam.
fn mind(request: &ChatRequest, n: usize) -> Reply {
    let last = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
    if last.starts_with("<statements>") && request.response_format.is_some() {
        let mut filed = Vec::new();
        for line in last.lines() {
            let Some((number, said)) = line.split_once(". ").and_then(|(n, rest)| Some((n, rest.split_once(": ")?.1)))
            else {
                continue;
            };
            let theme = SAID.iter().find(|(_, text, _)| text.contains(said)).and_then(|(.., theme)| theme.clone());
            filed.extend(theme.map(|theme| json!({"n": number.parse::<u32>().unwrap_or_default(), "domain": theme})));
        }
        return Reply::Text(json!({"claims": [], "filed": filed}).to_string());
    }
    match () {
        () if last.contains("That day is ") => Reply::Text(json!({"say": "How did your exam go, Ada?"}).to_string()),
        () if last.starts_with("The lifeform: ") => Reply::Text(json!({"change": "keep", "voice": ""}).to_string()),
        () if last.contains("\nEarlier:\n") => Reply::Text(json!({"contradicted": [1], "correction": ""}).to_string()),
        () if request.response_format.is_some() => {
            Reply::Text(json!({"facts": [], "promises": [], "learned": []}).to_string())
        }
        () => honest(request, n),
    }
}

struct Month {
    daemon: TestDaemon,
    id: String,
    life: String,
    chat: String,
    socket: Socket,
    people: BTreeMap<String, Client>,
}

impl Month {
    async fn kip(&self, command: &str) -> Value {
        let answer = self.daemon.operator.post(&format!("{}/kip", self.life), json!({"command": command})).await;
        answer.expect(StatusCode::OK)["result"].clone()
    }

    async fn count(&self, pattern: &str) -> u64 {
        self.kip(&format!("FIND(COUNT(?x)) WHERE {{ {pattern} }}")).await[0].as_u64().unwrap_or_default()
    }

    async fn say(&mut self, who: &str, topic: &str, words: &str) -> String {
        self.people[who].say(&self.chat, topic, words).await;
        text_of(self.socket.answer().await.last().unwrap())
    }

    /// Waits until no job is under way.
    async fn settle(&self) {
        let list = "/v1/jobs?limit=200&status=running";
        loop {
            let jobs = self.daemon.operator.get(list).await.expect(StatusCode::OK);
            if jobs["jobs"].as_array().unwrap().is_empty() {
                return;
            }
            again().await;
        }
    }

    /// Waits until the jobs of a night have ended.
    async fn night(&self, date: &str) {
        // The tasks run one after the other; this is the last one.
        let job = format!("/v1/jobs/{}.night.{date}.reflect", self.id);
        while self.daemon.operator.get(&job).await.body["status"] != "completed" {
            again().await;
        }
    }

    async fn spent(&self) -> i64 {
        let resources = self.daemon.operator.get(&format!("{}/resources", self.life)).await.expect(StatusCode::OK);
        resources["spent"]["tokens"].as_i64().unwrap_or_default()
    }

    /// Returns the whole graph as text, without the versions and times of its elements.
    async fn graph(&self) -> String {
        let mut parts = Vec::new();
        for (kind, pattern) in
            [("$ConceptType", r#"?x {type: "$NAME"}"#), ("$PropositionType", r#"?x (?s, "$NAME", ?o)"#)]
        {
            let names = self.kip(&format!(r#"FIND(?t.name) WHERE {{ ?t {{type: "{kind}"}} }} ORDER BY ?t.name"#)).await;
            for name in names.as_array().unwrap().iter().filter_map(Value::as_str) {
                let pattern = pattern.replace("$NAME", name);
                let found = self.kip(&format!("FIND(?x) WHERE {{ {pattern} }} ORDER BY ?x.id LIMIT 5000")).await;
                let mut found = found.as_array().cloned().unwrap_or_default();
                for element in &mut found {
                    if let Some(metadata) = element["metadata"].as_object_mut() {
                        metadata
                            .retain(|member, _| !matches!(member.as_str(), "_version" | "_updated_at" | "_created_at"));
                    }
                }
                parts.extend(found.iter().map(Value::to_string));
            }
        }
        parts.sort();
        parts.join("\n")
    }
}

#[tokio::test]
async fn a_month_of_talk_and_its_nights() {
    let daemon = TestDaemon::start(mind).await;
    let quiet = json!({"from": "22:00", "to": "07:00", "zone": "UTC"});
    let definition =
        json!({"name": "Iris", "initiative": {"quiet": quiet}, "nutrients": {"tokens": 5_000_000, "micro_usd": 0}});
    let (life, chat) = born(&daemon, definition).await;
    let mut people = BTreeMap::new();
    for who in ["ada", "ben", "cleo"] {
        people.insert(who.to_owned(), daemon.person(&format!("user:{who}"), "participant").await);
    }
    for (who, topic) in [("ada", "talk"), ("ada", "ada"), ("ben", "ben")] {
        people[who].topic(&chat, topic).await;
    }
    let socket = live(&daemon, &chat).await;
    let id = life.rsplit('/').next().unwrap().to_owned();
    let mut month = Month { daemon, id, life, chat, socket, people };
    let extra: BTreeMap<usize, (&str, &str)> = [
        (1, ("ada", "My cat is called Miso.")),
        (4, ("ada", "My exam is on Tuesday.")),
        (11, ("ada", "My cat is called Tofu now.")),
        (17, ("ben", "I keep a key under the third pot.")),
        (20, ("ben", "Forget that I keep a key under the third pot.")),
    ]
    .into();
    let mut said = SAID.iter();
    let mut rows = Vec::new();
    let (mut undone, mut spent) = (None, 0);
    for day in 1..=DAYS {
        // Nine in the morning.
        month.daemon.clock.advance_ms(if day == 1 { 9 * HOUR_MS } else { 4 * HOUR_MS });
        month.settle().await;
        let told: Vec<(&str, &str)> = said.by_ref().take(A_DAY).map(|(who, text, _)| (&**who, &**text)).collect();
        for (who, text) in &told {
            month.say(who, "talk", text).await;
        }
        // What is Ada's or Ben's own is said in a topic of theirs.
        if let Some((who, text)) = extra.get(&day) {
            month.say(who, who, text).await;
        }
        month.settle().await;
        // At noon it asks about what is open: the day after the exam.
        month.daemon.clock.advance_ms(3 * HOUR_MS);
        if day == 7 {
            month.socket.until(|frame| text_of(frame).contains("How did your exam go")).await;
        }
        month.settle().await;
        let by_day = month.spent().await - spent;
        let date = format!("2026-01-{:02}", day + 1);
        let before = if day == DAYS { Some(month.graph().await) } else { None };
        // Five at night.
        month.daemon.clock.advance_ms(17 * HOUR_MS);
        let date = if day + 1 > 31 { "2026-02-01".to_owned() } else { date };
        month.night(&date).await;
        spent += by_day;
        let by_night = month.spent().await - spent;
        spent += by_night;
        let facts = month.count(r#"?x {type: "Fact"} FILTER(?x.metadata.status == "active")"#).await;
        let gone = month.count(r#"?x {type: "Fact"} FILTER(?x.metadata.status != "active")"#).await;
        let claims = month.count(r#"?x (?f, "states", ?l)"#).await;
        let domains =
            month.count(r#"?x {type: "Domain"} FILTER(?x.name != "CoreSchema" && ?x.name != "Conversation")"#).await;
        let filed = month
            .count(r#"?f {type: "Fact"} ?x (?f, "belongs_to_domain", ?d) FILTER(?d.name != "Conversation")"#)
            .await;
        rows.push(format!(
            "| {day} | {} | {facts} | {gone} | {claims} | {domains} | {filed} | {by_day} | {by_night} |",
            told.len() + usize::from(extra.contains_key(&day))
        ));
        undone = before.map(|before| (before, date));
    }
    let (before, date) = undone.unwrap();
    let after = month.graph().await;
    assert_ne!(before, after, "the last night changed something");
    let undo = json!({"job": format!("{}.night.{date}", month.id)});
    let answer = month.daemon.operator.post(&format!("/v1/nexus/{}/undo", month.id), undo).await.expect(StatusCode::OK);
    let back = month.graph().await;
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let (was, is) = (lines(&before), lines(&back));
    let (lost, new): (Vec<_>, Vec<_>) = (was.difference(&is).collect(), is.difference(&was).collect());
    assert!(lost.is_empty() && new.is_empty(), "{answer}: lost {lost:#?}, new {new:#?}");
    // It asked once about the exam, knows the present name of the cat, and nothing of the key.
    let messages = month.daemon.operator.get(&format!("{}/topics/ada/messages?limit=100", month.chat)).await;
    let asked = messages.body["messages"].as_array().unwrap().iter();
    let asked = asked.filter(|message| message["content"] == "How did your exam go, Ada?").count();
    let cat = month.say("ada", "ada", "What is my cat called?").await;
    let key = month.say("ben", "ben", "Where do I keep a key?").await;
    println!(
        "| day | messages | facts | no longer held | claims | domains | filed | tokens by day | tokens by night |"
    );
    println!("|---|---|---|---|---|---|---|---|---|\n{}", rows.join("\n"));
    println!("\nasked about the exam: {asked}; cat: {cat}; key: {key}; undone: {answer}");
    assert_eq!(asked, 1);
    assert!(cat.contains("Tofu") && !cat.contains("called Miso"), "{cat}");
    assert!(!key.contains("pot"), "{key}");
    let domains =
        month.count(r#"?x {type: "Domain"} FILTER(?x.name != "CoreSchema" && ?x.name != "Conversation")"#).await;
    assert!(domains >= 4, "{domains}");
}
