//! A week with two people and two lifeforms, on a clock that is moved: the transcript stands in `benches/life/week.md`.

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, honest, text_of};

use super::goals::{born, live, says};

const HOUR_MS: i64 = 3_600_000;

fn last(request: &ChatRequest) -> String {
    request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default()
}

/// A mind that answers out of its notes, and judges as a person would.
fn mind(request: &ChatRequest, n: usize) -> Reply {
    let said = last(request);
    match () {
        () if said.contains("That day is ") && said.contains("exam") => {
            Reply::Text(json!({"say": "How did your exam go, Ada?"}).to_string())
        }
        () if said.contains("That day is ") => Reply::Text(json!({"say": ""}).to_string()),
        () if said.starts_with("The lifeform: ") => Reply::Text(json!({"change": "keep", "voice": ""}).to_string()),
        () if said.contains("\nEarlier:\n") => {
            let is_new_name = said.contains("Tofu") && said.contains("1. ada: My cat is called Miso");
            let contradicted = if is_new_name { vec![1] } else { Vec::new() };
            Reply::Text(json!({"contradicted": contradicted, "correction": "Your cat is called Tofu."}).to_string())
        }
        () if request.response_format.is_some() => {
            Reply::Text(json!({"facts": [], "promises": [], "learned": []}).to_string())
        }
        () => honest(request, n),
    }
}

/// The transcript of the week: what was said, with the time of the clock.
struct Week {
    daemon: TestDaemon,
    chat: String,
    socket: Socket,
    hour: i64,
    lines: Vec<String>,
}

impl Week {
    fn write(&mut self, who: &str, words: &str) {
        let (day, hour) = (self.hour / 24, self.hour % 24);
        let name = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed", "Thu"][day as usize % 8];
        self.lines.push(format!("| {name} {hour:02}:00 | {who} | {} |", words.replace('\n', " / ")));
    }

    /// Moves the clock to an hour of the week.
    async fn until(&mut self, hour: i64) {
        self.settle().await;
        self.daemon.clock.advance_ms((hour - self.hour) * HOUR_MS);
        self.hour = hour;
    }

    /// Waits for what comes after the answers.
    async fn settle(&self) {
        loop {
            let jobs = self.daemon.operator.get("/v1/jobs?limit=200").await.expect(StatusCode::OK);
            let is_over = |job: &Value| ["completed", "failed", "cancelled"].contains(&job["status"].as_str().unwrap());
            if jobs["jobs"].as_array().unwrap().iter().all(is_over) {
                break;
            }
            tests::again().await;
        }
    }

    async fn said_by(&mut self, who: &str, topic: &'static str) -> String {
        let own = |frame: &Value| {
            let is_whole = frame["kind"] == "message.finish" || !frame["patch"].to_string().contains("\"streaming\"");
            says(topic)(frame) && is_whole && frame["actor"]["kind"] == "lifeform"
        };
        let said = text_of(self.socket.until(own).await.last().unwrap());
        self.write(who, &said);
        said
    }

    async fn ask(&mut self, who: &Client, name: &str, topic: &'static str, words: &str, by: &str) -> String {
        self.write(name, words);
        who.say(&self.chat, topic, words).await;
        self.said_by(by, topic).await
    }
}

#[tokio::test]
async fn a_week_with_two_people_and_two_lifeforms() {
    let daemon = TestDaemon::start(mind).await;
    let quiet = json!({"from": "22:00", "to": "07:00", "zone": "UTC"});
    let definition = |name: &str| json!({"name": name, "initiative": {"quiet": quiet}});
    let (life, chat) = born(&daemon, definition("Iris")).await;
    let (bo, _) = born(&daemon, definition("Bo")).await;
    let (ada, lin) = (daemon.person("user:ada", "participant").await, daemon.person("user:lin", "participant").await);
    let socket = live(&daemon, &chat).await;
    let id = bo.rsplit('/').next().unwrap().to_owned();
    assert_eq!(daemon.operator.put(&format!("{chat}/members/{id}"), json!({})).await.status, StatusCode::NO_CONTENT);
    ada.topic(&chat, "adas").await;
    lin.topic(&chat, "lins").await;
    ada.topic(&chat, "bos").await;
    let mut week = Week { daemon, chat, socket, hour: 0, lines: Vec::new() };
    // Thursday, 1 January 2026.
    week.until(9).await;
    week.ask(&ada, "Ada", "adas", "My exam is on Friday. My cat is called Miso.", "Iris").await;
    week.ask(&lin, "Lin", "lins", "我下周二去上海。我的生日是3月5日。", "Iris").await;
    let set = week.ask(&ada, "Ada", "adas", "Remind me on Sunday at 9 to call my mother.", "Iris").await;
    assert!(set.contains("Sunday, 4 January, at 09:00"), "{set}");
    // Friday: another lifeform that heard it answers, where it is addressed; Lin's topic is not for Ada.
    week.until(30).await;
    let told = week.ask(&ada, "Ada", "bos", "@Bo what is my cat called?", "Bo").await;
    assert!(told.contains("Miso"), "{told}");
    let told = week.ask(&ada, "Ada", "adas", "Who goes to Shanghai?", "Iris").await;
    assert!(!told.contains("上海"), "what Lin said is for Lin: {told}");
    // Saturday: Iris asks by itself, in the morning and not at night.
    week.until(52).await;
    tests::again().await;
    week.until(58).await;
    let asked = week.said_by("Iris (unasked)", "adas").await;
    assert_eq!(asked, "How did your exam go, Ada?");
    week.ask(&ada, "Ada", "adas", "It went well, I passed it.", "Iris").await;
    // Sunday: the reminder, in her own words and for no tokens.
    week.settle().await;
    let calls = week.daemon.model.asked().len();
    week.until(81).await;
    let reminded = week.said_by("Iris (reminder)", "adas").await;
    assert!(reminded.contains("call my mother"), "{reminded}");
    assert_eq!(week.daemon.model.asked().len(), calls, "a reminder needs no model");
    // Monday: the cat has another name, and Lin wants the journey forgotten before its day comes.
    week.until(105).await;
    week.ask(&ada, "Ada", "adas", "My cat is called Tofu now.", "Iris").await;
    let gone = week.ask(&lin, "Lin", "lins", "忘掉我去上海的事。", "Iris").await;
    assert!(gone.starts_with("已忘记"), "{gone}");
    // Wednesday: nobody asks about a journey that is forgotten.
    week.until(148).await;
    week.until(155).await;
    let left = week.ask(&lin, "Lin", "lins", "你知道我的什么？", "Iris").await;
    assert!(!left.contains("上海") && left.contains("生日"), "{left}");
    let left = week.ask(&ada, "Ada", "adas", "What do you know about me?", "Iris").await;
    assert!(left.contains("Tofu") && !left.contains("called Miso"), "{left}");
    let op = &week.daemon.operator;
    let facts = r#"FIND(?f.attributes.statement, ?f.metadata.author, ?f.metadata.status) WHERE { ?f {type: "Fact"} } ORDER BY ?f.attributes.statement"#;
    let kept =
        op.post(&format!("{life}/kip"), json!({"command": facts})).await.expect(StatusCode::OK)["result"].clone();
    let report = op.get(&format!("{life}/resources/report")).await.expect(StatusCode::OK);
    let spent = op.get(&format!("{life}/resources")).await.expect(StatusCode::OK)["spent"].clone();
    assert_eq!(report["total"]["charged"], spent, "all of it is accounted for");
    assert!(
        kept.as_array()
            .unwrap()
            .iter()
            .all(|row| row[2] == "active" || row[2] == "superseded" || row[2] == "retracted")
    );
    println!("| time | who | words |\n|---|---|---|\n{}\n", week.lines.join("\n"));
    println!("| statement | by | status |\n|---|---|---|");
    for row in kept.as_array().unwrap() {
        println!(
            "| {} | {} | {} |",
            row[0].as_str().unwrap_or(""),
            row[1].as_str().unwrap_or(""),
            row[2].as_str().unwrap_or("")
        );
    }
    println!("\n| dimension | name | calls | tokens |\n|---|---|---|---|");
    for dimension in ["person", "fascicle", "goal", "day"] {
        for (name, tally) in report["by"][dimension].as_object().into_iter().flatten() {
            println!("| {dimension} | {name} | {} | {} |", tally["calls"], tally["charged"]["tokens"]);
        }
    }
}
