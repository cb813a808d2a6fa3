//! The forms of MCP servers: questions in the middle of a call that a person answers, in words or over the API (MISSION N4).

use neurons::spec::Approval;
use reqwest::StatusCode;
use runtime::config::{Server, Tools};
use serde_json::{Value, json};
use tests::notes::Notes;
use tests::{Client, Socket, TestDaemon, text_of};

use super::goals::{born, live, says};
use crate::neurons::tools::{serve, server};

struct World {
    daemon: TestDaemon,
    notes: Notes,
    life: String,
    chat: String,
    socket: Socket,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let (notes, folder) = (Notes::default(), tempfile::tempdir().unwrap());
        let key_file = folder.path().join("key");
        std::fs::write(&key_file, "s3cret").unwrap();
        let there =
            Server { url: Some(serve(&notes).await), key_file: Some(key_file), ..server(Approval::Never, true) };
        let tools = Tools { servers: [("notes".into(), there)].into(), ..Tools::default() };
        let daemon = TestDaemon::builder().tools(tools).calls_tools().start(super::mind::obedient).await;
        let named = json!({"approval": "never", "run": {"mcp": {"server": "notes"}}});
        daemon.operator.put("/v1/tools/notes", named).await.expect(StatusCode::CREATED);
        let (life, chat) = born(&daemon, json!({"name": "Iris", "tools": [{"use": "notes"}]})).await;
        let socket = live(&daemon, &chat).await;
        daemon.operator.topic(&chat, "t").await;
        Self { daemon, notes, life, chat, socket, _folder: folder }
    }

    async fn next(&mut self) -> String {
        let lifeforms = |frame: &Value| says("t")(frame) && frame["actor"]["kind"] == "lifeform";
        text_of(self.socket.until(lifeforms).await.last().unwrap())
    }

    async fn answered(&mut self, words: &str) -> String {
        self.daemon.operator.say(&self.chat, "t", words).await;
        self.next().await
    }

    /// Has a note written, which a person allows first, and returns what is said then.
    async fn noting(&mut self, text: &str) -> String {
        let question = self.answered(&format!("notes_write {}?", json!({"text": text}))).await;
        assert!(question.contains("Yes or no"), "{question}");
        self.answered("Yes.").await
    }

    /// Says the answer to a form, and returns what is said once the call went on.
    async fn answering(&mut self, words: &str) -> String {
        assert_eq!(self.answered(words).await, "I passed it on to `notes`.");
        self.next().await
    }

    async fn waiting(&self, who: &Client) -> Vec<Value> {
        let page = who.get("/v1/approvals").await.expect(StatusCode::OK);
        page["approvals"].as_array().unwrap().clone()
    }

    /// Restarts the daemon as if it had been killed.
    async fn restarted(self) -> Self {
        let daemon = self.daemon.kill_and_restart().await;
        let socket = live(&daemon, &self.chat).await;
        Self { daemon, socket, ..self }
    }

    async fn effects(&self) -> Vec<Value> {
        let effects = self.daemon.operator.get(&format!("{}/effects", self.life)).await.expect(StatusCode::OK);
        effects["effects"].as_array().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_answers_the_question_of_a_server_in_words() {
    let mut world = World::new().await;
    let question = world.noting("ask").await;
    // The words of the server stand as code.
    assert!(question.starts_with("To go on, the server `notes` asks: `Who are *you*?`"), "{question}");
    assert!(question.contains("- `name?`") && question.contains("value alone"), "{question}");
    assert!(world.notes.notes().is_empty());
    // The question outlives the daemon, and what was begun goes on with the answer.
    let mut world = world.restarted().await;
    let answer = world.answering("Ada of the harbour").await;
    assert!(
        answer.contains(r#""content":{"name":"Ada of the harbour"}"#) && answer.contains(r#""state":"s1""#),
        "{answer}"
    );
    assert_eq!(world.notes.notes().len(), 1);
    let effects = world.effects().await;
    assert_eq!((effects.len(), &effects[0]["state"]), (1, &json!("done")), "one effect, over both requests");
    // After another restart the answer is no request.
    let mut world = world.restarted().await;
    assert_eq!(world.answered("Thank you.").await, "I see.");
    assert_eq!(world.notes.notes().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_do_not_fit_are_asked_for_again() {
    let mut world = World::new().await;
    let question = world.noting("ask much").await;
    assert!(question.contains("- `name`: `Whose note it is.`\n- `nights`: `integer`"), "{question}");
    let hint = world.answered("I am Ada.").await;
    assert!(hint.contains("field: value") && !hint.contains("To go on"), "{hint}");
    let hint = world.answered("name: Ada\nnights: two").await;
    assert!(hint.contains("nights") && hint.contains("two"), "{hint}");
    assert!(world.notes.notes().is_empty());
    let answer = world.answering("name: Ada\nnights: 2").await;
    assert!(answer.contains(r#"{"name":"Ada","nights":2}"#), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_does_not_answer_declines() {
    let mut world = World::new().await;
    world.noting("ask").await;
    let answer = world.answering("No.").await;
    assert!(answer.contains(r#"{"name":{"action":"decline"}}"#), "{answer}");
    // Words that decide something else are no answer, and words that end it decline.
    world.noting("ask once more").await;
    assert!(world.answered("Yes.").await.contains("value alone"));
    let answer = world.answering("Stop.").await;
    assert!(answer.contains("decline"), "{answer}");
    assert!(world.notes.notes().is_empty());
    // Nobody is asked for a secret.
    let answer = world.noting("ask a secret").await;
    assert!(answer.contains("decline"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_declined_is_not_in_doubt() {
    let mut world = World::new().await;
    world.noting("ask or fail").await;
    let answer = world.answering("No.").await;
    assert!(answer.contains("nobody said") && !answer.contains("unknown"), "{answer}");
    assert_eq!(world.effects().await[0]["state"], "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_say_is_no_answer() {
    let mut world = World::new().await;
    world.noting("ask").await;
    let bo = world.daemon.person("user:bo", "operator").await;
    bo.say(&world.chat, "t", "The tide is high today.").await;
    let answer = world.answering("Ada").await;
    assert!(answer.contains(r#"{"name":"Ada"}"#), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_is_answered_over_the_api_by_those_who_may() {
    let mut world = World::new().await;
    world.noting("ask twice").await;
    let (op, eve) =
        (world.daemon.person("user:op2", "operator").await, world.daemon.person("user:eve", "participant").await);
    let waiting = world.waiting(&op).await;
    let (id, call) = (waiting[0]["id"].as_str().unwrap().to_owned(), &waiting[0]["calls"][0]);
    assert_eq!((&call["form"]["server"], &call["form"]["message"]), (&json!("notes"), &json!("Who are *you*?")));
    let path = format!("/v1/approvals/{id}");
    let answers = json!({"decision": "answer", "answers": {"name": "Ada"}});
    eve.post(&path, answers.clone()).await.expect(StatusCode::NOT_FOUND);
    for (body, why) in [
        (json!({"decision": "approve"}), "a server asks for answers"),
        (json!({"decision": "done"}), "a server asks for answers"),
        (json!({"decision": "answer"}), "answers stand beside"),
        (json!({"decision": "approve", "answers": {}}), "answers stand beside"),
        (json!({"decision": "answer", "answers": {"name": 7}}), "do not fit"),
        (json!({"decision": "answer", "answers": {"age": 7}}), "no field"),
    ] {
        let refused = op.post(&path, body.clone()).await.expect(StatusCode::UNPROCESSABLE_ENTITY);
        assert!(refused.to_string().contains(why), "{body}: {refused}");
    }
    op.post(&path, answers.clone()).await.expect(StatusCode::OK);
    op.post(&path, answers).await.expect(StatusCode::OK);
    // The server asks once more, and that is another question.
    assert!(world.next().await.starts_with("To go on"));
    let next = world.waiting(&op).await[0]["id"].as_str().unwrap().to_owned();
    assert_ne!(next, id);
    let answer = json!({"decision": "answer", "answers": {"name": "Bo"}});
    op.post(&format!("/v1/approvals/{next}"), answer).await.expect(StatusCode::OK);
    let said = world.next().await;
    assert!(said.contains(r#""state":"s2""#) && said.contains("Bo"), "{said}");
    assert_eq!(world.notes.notes().len(), 1);
}
