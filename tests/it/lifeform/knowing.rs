//! The graph of a lifeform: statements become claims, and the graph answers questions over several relations, counts and lists. An answer
//! rests only on statements that all readers heard (MISSION K8, K12, L7).

use neurons::llm::ChatRequest;
use neurons::llm::scripted::Reply;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tests::{Client, Socket, TestDaemon, honest, text_of};

/// The tasks of a night, by name.
pub(crate) const NIGHTLY: [&str; 15] = [
    "archive_persons",
    "check_claims",
    "consolidate_memory",
    "describe_domains",
    "describe_people",
    "distil_knowledge",
    "evolve_schema",
    "expire",
    "file_domains",
    "form_claims",
    "merge_concepts",
    "read_statements",
    "reflect",
    "summarise_people",
    "weigh_claims",
];

/// A lifeform that repeats what it remembers.
pub(crate) struct World {
    pub(crate) daemon: TestDaemon,
    pub(crate) life: String,
    chat: String,
    socket: Socket,
}

impl World {
    async fn new(topics: &[&str]) -> Self {
        Self::with(honest, topics).await
    }

    pub(crate) async fn with(model: fn(&ChatRequest, usize) -> Reply, topics: &[&str]) -> Self {
        let daemon = TestDaemon::start(model).await;
        let (id, chat) = daemon.lifeform().await;
        let mut socket = daemon.operator.subscribe(&chat, None).await;
        socket.until(|frame| frame["t"] == "live").await;
        for topic in topics {
            daemon.operator.topic(&chat, topic).await;
        }
        Self { daemon, life: format!("/v1/lifeforms/{id}"), chat, socket }
    }

    pub(crate) async fn say(&mut self, who: &Client, topic: &str, content: &str) -> String {
        who.say(&self.chat, topic, content).await;
        text_of(self.socket.answer().await.last().unwrap())
    }

    pub(crate) async fn kip(&self, command: &str) -> Value {
        let answer = self.daemon.operator.post(&format!("{}/kip", self.life), json!({"command": command})).await;
        answer.expect(StatusCode::OK)["result"].clone()
    }

    /// Says something and waits until its claims, and all of these before, are there.
    pub(crate) async fn tell(&mut self, who: &Client, topic: &str, content: &str, claims: usize) {
        self.say(who, topic, content).await;
        while self.claims().await.len() < claims {
            tests::again().await;
        }
    }

    /// Has `$system` carry out a task, waits for its end, and returns its job.
    pub(crate) async fn maintain(&self, task: &str) -> Value {
        self.ordered(json!({"task": task})).await
    }

    /// Orders a task of `$system`, waits for its end, and returns its job.
    pub(crate) async fn ordered(&self, order: Value) -> Value {
        let path = format!("{}/system/run-maintenance", self.life);
        let job = self.daemon.operator.post(&path, order).await.expect(StatusCode::ACCEPTED);
        let path = format!("/v1/jobs/{}", job["job_id"].as_str().unwrap());
        loop {
            let job = self.daemon.operator.get(&path).await.expect(StatusCode::OK);
            if job["status"] == "completed" {
                return job;
            }
            tests::again().await;
        }
    }

    /// Waits until the night of a day is over.
    pub(crate) async fn night(&self, day: &str) {
        let last = format!("/v1/jobs/{}.night.{day}.reflect", self.life.rsplit('/').next().unwrap());
        while self.daemon.operator.get(&last).await.body["status"] != "completed" {
            tests::again().await;
        }
    }

    /// Waits for a message that the lifeform posts unasked and that begins with these words.
    pub(crate) async fn hears(&mut self, words: &str) -> String {
        let said = self.socket.until(|frame| text_of(frame).starts_with(words)).await;
        text_of(said.last().unwrap())
    }

    /// Returns the claims of active facts, as pairs of the two.
    pub(crate) async fn claims(&self) -> Vec<Value> {
        let defined = self.kip(r#"FIND(?t) WHERE { ?t {type: "$PropositionType", name: "states"} }"#).await;
        if defined == json!([]) {
            return Vec::new();
        }
        let found =
            self.kip(r#"FIND(?f.id, ?l.id) WHERE { (?f, "states", ?l) FILTER(?f.metadata.status == "active") }"#).await;
        found.as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn a_chain_over_three_talks_is_answered_by_one_find() {
    for (told, question, answer) in [
        (
            [
                "My sister Henrike lives in Gdańsk.",
                "Tom is a neighbour of Henrike.",
                "Tom sails on the lake every summer.",
            ],
            "Which of my sister's neighbours sails?",
            "(As far as you were told: Tom)",
        ),
        (
            ["我的姐姐小梅住在杭州。", "老王是小梅的邻居。", "老王会帆船。"],
            "我姐姐的邻居里谁会帆船？",
            "(就我所听说的：老王)",
        ),
        (
            ["姉の由美は神戸に住んでいます。", "田中さんは由美の隣人です。", "田中さんはヨットをしています。"],
            "姉の隣人の中で誰がヨットをしていますか？",
            "(聞いたかぎりでは：田中)",
        ),
    ] {
        let mut world = World::new(&["one", "two", "three", "four"]).await;
        let ada = world.daemon.person("user:ada", "participant").await;
        for (topic, (statement, claims)) in ["one", "two", "three"].into_iter().zip(told.into_iter().zip([3, 5, 6])) {
            world.tell(&ada, topic, statement, claims).await;
        }
        let said = world.say(&ada, "four", question).await;
        assert!(said.contains(answer), "{said}");
        assert!(told.iter().all(|statement| said.contains(statement)), "{said}");
        // Each claim has the one statement that says it as its evidence.
        let find = r#"FIND(?f.attributes.statement) WHERE { ?l (?s, "does", ?o) (?f, "states", ?l) }"#;
        assert_eq!(world.kip(find).await, json!([told[2]]));
    }
}

#[tokio::test]
async fn how_many_and_which_are_counted_in_the_graph() {
    let mut world = World::new(&["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My friends Ben and Cleo live in Oslo.", 6).await;
    world.tell(&ada, "t", "My friend Dora lives in Rome.", 9).await;
    world.tell(&ada, "t", "We have a dog called Rex and a cat called Miso.", 11).await;
    for (question, answer) in [
        ("How many of my friends live in Oslo?", "(As far as you were told, 2: Ben, Cleo)"),
        ("How many friends do I have?", "(As far as you were told, 3: Ben, Cleo, Dora)"),
        ("Who lives in Rome?", "(As far as you were told: Dora)"),
        ("What pets do I have?", "(As far as you were told: Rex (dog), Miso (cat))"),
        ("Where does Dora live?", "(As far as you were told: Rome)"),
    ] {
        let said = world.say(&ada, "u", question).await;
        assert!(said.contains(answer), "{question}\n{said}");
    }
}

#[tokio::test]
async fn the_graph_tells_only_what_every_reader_heard() {
    let mut world = World::new(&["hers", "his", "both", "group", "hers_again"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let bob = world.daemon.person("user:bob", "participant").await;
    world.tell(&ada, "hers", "My sister Henrike lives in Oslo.", 3).await;
    world.tell(&ada, "hers", "My friends Ben and Cleo live in Rome.", 9).await;
    // He has heard of none of it: not the place, not the name, not the number.
    for question in [
        "Where does Henrike live?",
        "Who lives in Oslo?",
        "How many sisters does Ada have?",
        "What do you know about Henrike?",
    ] {
        let said = world.say(&bob, "his", question).await;
        assert_eq!(said, "I do not know.", "{question}");
    }
    world.say(&bob, "both", "Good morning to you all, my friends").await;
    world.tell(&ada, "both", "My friend Dora lives in Rome.", 12).await;
    // Where Bob speaks, too, the answer to Ada counts only the friend that was mentioned before both.
    let said = world.say(&ada, "both", "How many of my friends live in Rome?").await;
    assert!(said.contains("(As far as you were told, 1: Dora)") && !said.contains("Ben"), "{said}");
    let said = world.say(&bob, "group", "Who lives in Rome?").await;
    assert!(said.contains("(As far as you were told: Dora)") && !said.contains("Cleo"), "{said}");
    let said = world.say(&ada, "hers_again", "How many of my friends live in Rome?").await;
    assert!(said.contains("(As far as you were told, 3: Ben, Cleo, Dora)"), "{said}");
    // He reads the graph as far as he heard it, and of a claim with two sources only the one that he heard.
    world.tell(&ada, "both", "My friend Ben lives in Rome.", 15).await;
    let find = json!({"command": r#"FIND(?s.attributes.name, ?l) WHERE { ?l (?s, "lives_in", ?o) } ORDER BY ?s.attributes.name"#});
    let lives = loop {
        let found =
            bob.post(&format!("{}/kip", world.life), find.clone()).await.expect(StatusCode::OK)["result"].clone();
        if found.as_array().unwrap().len() == 2 {
            break found;
        }
        tests::again().await;
    };
    assert_eq!((&lives[0][0], &lives[1][0]), (&json!("Ben"), &json!("Dora")), "{lives}");
    let metadata = &lives[0][1]["metadata"];
    assert_eq!(metadata["_claims"].as_object().unwrap().len(), 1, "{metadata}");
    assert_eq!(metadata["access_scopes"], json!(["user:bob"]), "who else heard of it is not said: {metadata}");
    assert_eq!(metadata["_version"], 1, "{metadata}");
    // The links are scoped like the statements.
    let scopes = world.kip(r#"FIND(?l.metadata.access_scopes) WHERE { ?l (?s, "relative_of", ?o) }"#).await;
    assert_eq!(scopes[0], json!(["user:ada"]), "{scopes}");
}

#[tokio::test]
async fn who_moved_lives_where_he_moved_to() {
    let mut world = World::new(&["t", "u", "v"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My brother Max lives in Rome.", 3).await;
    world.tell(&ada, "t", "Max moved to Oslo.", 4).await;
    let said = world.say(&ada, "u", "Where does my brother live?").await;
    assert!(said.contains("(As far as you were told: Oslo)"), "{said}");
    let lives = r#"FIND(?o.name, ?l.metadata.status) WHERE { ?l (?s, "lives_in", ?o) } ORDER BY ?o.name"#;
    while world.kip(lives).await != json!([["Oslo", "active"], ["Rome", "superseded"]]) {
        tests::again().await;
    }
    assert_eq!(world.kip("DESCRIBE CONFLICTS").await, json!([]), "a change is no conflict");
    // Another person who says otherwise is not overruled: both are told, and it is a conflict.
    let bob = world.daemon.person("user:bob", "participant").await;
    world.say(&bob, "v", "Good evening, all my friends").await;
    world.tell(&ada, "v", "My brother Max lives in Oslo.", 7).await;
    world.tell(&bob, "v", "Max lives in Bergen.", 8).await;
    let said = world.say(&ada, "v", "Where does Max live?").await;
    assert!(said.contains("Oslo (not sure), Bergen (not sure))"), "{said}");
    let conflicts = world.kip("DESCRIBE CONFLICTS").await;
    assert_eq!(conflicts[0]["kind"], "functional", "{conflicts}");
}

#[tokio::test]
async fn what_is_forgotten_leaves_the_graph() {
    let mut world = World::new(&["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My sister Henrike lives in Gdańsk.", 3).await;
    world.tell(&ada, "t", "My cat is called Miso.", 4).await;
    world.daemon.operator.say(&world.chat, "u", "Good morning, all of you").await;
    world.socket.answer().await;
    ada.say(&world.chat, "t", "Forget that my sister Henrike lives in Gdańsk.").await;
    let all = |kind: &str| format!(r#"FIND(?e.attributes.name) WHERE {{ ?e {{type: "{kind}"}} }}"#);
    while world.kip(&all("Place")).await != json!([]) {
        tests::again().await;
    }
    assert!(!world.kip(&all("Person")).await.to_string().contains("Henrike"));
    assert_eq!(world.kip(&all("Thing")).await, json!(["Miso"]));
    let left = world.kip(r#"FIND(?l) WHERE { ?l (?s, "relative_of", ?o) }"#).await;
    assert_eq!(left, json!([]));
}

#[tokio::test]
async fn who_forgets_what_others_state_has_said_it_no_more() {
    let mut world = World::new(&["t"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let ben = world.daemon.person("user:ben", "participant").await;
    world.say(&ben, "t", "Good evening, all my friends").await;
    world.tell(&ada, "t", "Tom lives in Bergen.", 1).await;
    world.tell(&ben, "t", "Tom lives in Bergen.", 2).await;
    let tellers = r#"FIND(?p.name) WHERE { ?l (?s, "lives_in", ?o) (?p, "stated", ?l) } ORDER BY ?p.name"#;
    while world.kip(tellers).await != json!(["user:ada", "user:ben"]) {
        tests::again().await;
    }
    world.say(&ada, "t", "Forget that Tom lives in Bergen.").await;
    while world.kip(tellers).await != json!(["user:ben"]) {
        tests::again().await;
    }
    assert_eq!(world.claims().await.len(), 1, "Ben still says so");
    // So it is where she takes the message back.
    let messages = format!("{}/topics/t/messages", world.chat);
    ada.post(&messages, json!({"id": "again", "content": "Tom lives in Bergen, by the fjord."}))
        .await
        .expect(StatusCode::CREATED);
    while world.kip(tellers).await != json!(["user:ada", "user:ben"]) {
        tests::again().await;
    }
    ada.delete(&format!("{messages}/again")).await.expect(StatusCode::OK);
    while world.claims().await.len() > 1 {
        tests::again().await;
    }
    world.maintain("form_claims").await;
    assert_eq!(world.kip(tellers).await, json!(["user:ben"]));
}

#[tokio::test]
async fn what_is_taken_back_answers_no_more() {
    let mut world = World::new(&["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    ada.post(
        &format!("{}/topics/t/messages", world.chat),
        json!({"id": "m1", "content": "My friend Ben lives in Rome."}),
    )
    .await
    .expect(StatusCode::CREATED);
    world.socket.answer().await;
    while world.claims().await.len() < 3 {
        tests::again().await;
    }
    ada.delete(&format!("{}/topics/t/messages/m1", world.chat)).await.expect(StatusCode::OK);
    while !world.claims().await.is_empty() {
        tests::again().await;
    }
    assert_eq!(world.say(&ada, "u", "Who lives in Rome?").await, "I do not know.");
    // What is said again holds again.
    world.tell(&ada, "t", "My friend Ben lives in Rome.", 3).await;
    assert!(world.say(&ada, "u", "Who lives in Rome?").await.contains("(As far as you were told: Ben)"));
}

#[tokio::test]
async fn the_night_forms_what_was_left_and_repeats_nothing() {
    let mut world = World::new(&["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    world.tell(&ada, "t", "My friend Ben lives in Rome.", 3).await;
    // A statement of a mind that had no graph yet.
    let before = r#"DELETE PROPOSITIONS ?l WHERE { ?l (?f, "states", ?c) }"#;
    world.kip(before).await;
    world.maintain("form_claims").await;
    let formed = world.claims().await;
    assert_eq!(formed.len(), 3, "{formed:?}");
    world.maintain("form_claims").await;
    assert_eq!(world.claims().await, formed);
    assert!(world.say(&ada, "u", "Who lives in Rome?").await.contains("(As far as you were told: Ben)"));
}

/// Answers a batch of statements with claims, and all else like [`honest`].
fn reader(request: &ChatRequest, n: usize) -> Reply {
    let is_batch = request.response_format.is_some() && json!(request.messages).to_string().contains("<statements>");
    if !is_batch {
        return honest(request, n);
    }
    let said = request.messages.last().and_then(|message| message.content.clone()).unwrap_or_default();
    let number = |of: &str| {
        let line = said.lines().find(|line| line.contains(of)).unwrap_or_default();
        line.split('.').next().and_then(|number| number.parse::<usize>().ok()).unwrap_or_default()
    };
    let claims = json!([
        {"n": number("Henrike"), "s": "I", "p": "relative_of", "relation": "sister", "o": "Henrike"},
        {"n": number("settled"), "s": "Henrike", "p": "lives_in", "o": "Gdańsk"},
        // Of these the words bear out none.
        {"n": number("settled"), "s": "Henrike", "p": "lives_in", "o": "Berlin"},
        {"n": number("kettle 3"), "s": "Mallory", "p": "owns", "o": "kettle"},
    ]);
    Reply::Text(json!({"claims": claims, "filed": []}).to_string())
}

#[tokio::test]
async fn a_model_reads_a_dozen_statements_in_one_call() {
    let mut world = World::with(reader, &["t", "u"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let batches = |world: &World| {
        let asked = world.daemon.model.asked();
        asked.iter().filter(|request| json!(request.messages).to_string().contains("<statements>")).count()
    };
    world.say(&ada, "t", "Of my family, Henrike is the sister of whom I speak most.").await;
    world.say(&ada, "t", "It is in Gdańsk that she, Henrike, has settled.").await;
    for n in 0..10 {
        world.say(&ada, "t", &format!("The kettle {n} stands on the blue shelf.")).await;
    }
    assert_eq!(batches(&world), 0, "no model reads by day");
    world.maintain("read_statements").await;
    assert_eq!((batches(&world), world.claims().await.len()), (1, 3));
    let said = world.say(&ada, "u", "Where does my sister live?").await;
    assert!(said.contains("(As far as you were told: Gdańsk)") && !said.contains("Berlin"), "{said}");
    world.maintain("read_statements").await;
    assert_eq!(batches(&world), 1, "no statement is read twice");
    let names = world.kip(r#"FIND(?e.attributes.name) WHERE { ?e {type: "Person"} }"#).await.to_string();
    assert!(names.contains("Henrike") && !names.contains("Mallory"), "{names}");
}

#[tokio::test]
async fn a_name_that_was_told_in_private_is_not_said_to_others() {
    let mut world = World::new(&["hers", "both", "his"]).await;
    let ada = world.daemon.person("user:ada", "participant").await;
    let bob = world.daemon.person("user:bob", "participant").await;
    world.tell(&ada, "hers", "My sister Henrike lives in Oslo.", 3).await;
    world.say(&bob, "both", "Good morning to you all, my friends").await;
    world.tell(&ada, "both", "My sister sails on the lake.", 6).await;
    let said = world.say(&bob, "his", "Who sails?").await;
    assert!(said.contains("one whose name you were not told") && !said.contains("Henrike"), "{said}");
    assert!(!world.say(&bob, "his", "What do you know about Henrike?").await.contains("lake"));
    let read =
        bob.post(&format!("{}/kip", world.life), json!({"command": r#"FIND(?p) WHERE { ?p {type: "Person"} }"#})).await;
    assert!(!read.expect(StatusCode::OK).to_string().contains("Henrike"));
    // Ada knows of whom she spoke.
    let said = world.say(&ada, "hers", "Who sails?").await;
    assert!(said.contains("(As far as you were told: Henrike)"), "{said}");
}
