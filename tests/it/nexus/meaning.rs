//! SEARCH by meaning: what is alike is found though it shares no word, right after it was written, by those who may
//! see it; and nothing is embedded twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use neurons::llm::scripted::Scripted;
use neurons::llm::{Model, Price};
use nexus::{EmbedError, Embedder, Nexus, NexusId, Request};
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::{Cause, Clock, ManualClock, Memory, Origin, Principal, PrincipalKind, Role, Scope, Store, SystemClock};
use tests::{Client, honest, models_of};
use tokio::sync::Semaphore;

/// The name of the embedder of many scripts.
const MULTILINGUAL: &str = "words of the world";

/// Every word is a direction of its own, but for those that mean the same. It notes what it was asked.
#[derive(Clone)]
struct Words {
    name: &'static str,
    asked: Arc<Mutex<Vec<String>>>,
    out_of_order: Arc<AtomicBool>,
    /// Where there is one, each call waits to be let through.
    gate: Arc<Mutex<Option<Arc<Semaphore>>>>,
    /// One for each call that has come to the gate.
    entered: Arc<Semaphore>,
}

#[async_trait]
impl Embedder for Words {
    fn name(&self) -> &str {
        self.name
    }

    fn reads(&self, text: &str) -> bool {
        self.name == MULTILINGUAL || nexus::is_latin(text)
    }

    async fn embed(&self, _: &Origin, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        if self.out_of_order.load(Ordering::SeqCst) {
            return Err(EmbedError::Failed("the embedder is out of order".into()));
        }
        if texts.iter().any(|text| text.contains("unspeakable")) {
            return Err(EmbedError::Refused("it is unspeakable".into()));
        }
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            self.entered.add_permits(1);
            gate.acquire().await.unwrap().forget();
        }
        let vector = |text: &String| {
            let mut vector = vec![0.0; 8192];
            for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
                let word = if ["yacht", "vessel", "ship"].contains(&word) { "boat" } else { word };
                vector[word.bytes().fold(3_usize, |hash, byte| (hash * 131 + usize::from(byte)) % 8191)] += 1.0;
            }
            vector
        };
        let vectors = texts.iter().map(vector).collect();
        self.asked.lock().unwrap().extend(texts);
        Ok(vectors)
    }
}

impl Words {
    fn named(name: &'static str) -> Self {
        let (asked, out_of_order, gate) = (Arc::default(), Arc::default(), Arc::default());
        Self { name, asked, out_of_order, gate, entered: Arc::new(Semaphore::new(0)) }
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

struct Minds {
    nexus: Nexus,
    words: Words,
    store: Store,
    folder: tempfile::TempDir,
}

impl Minds {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::default()) as Arc<dyn Clock>;
        let store = Store::open(Arc::new(Memory::default()), clock).await.unwrap();
        let words = Words::named("words");
        let folder = tempfile::tempdir().unwrap();
        let nexus = Nexus::new(store.clone());
        Self { nexus, words, store, folder }.again().await
    }

    /// As another daemon finds them.
    async fn again(self) -> Self {
        let Self { nexus, words, store, folder } = self;
        drop(nexus);
        let file = folder.path().join("vectors.redb");
        let nexus = Nexus::new(store.clone()).with_embedder(Arc::new(words.clone()), Some(&file));
        let minds = Self { nexus, words, store, folder };
        minds.settled().await;
        minds
    }

    async fn ask(&self, command: &str, origin: &Origin) -> Value {
        let answer = self.nexus.execute(&"mind".into(), Request::new(command), origin).await.unwrap();
        assert!(answer.get("error").is_none(), "{answer}");
        answer
    }

    async fn run(&self, command: &str) -> Value {
        self.ask(command, &Origin::system("test")).await
    }

    async fn names(&self, command: &str) -> Vec<String> {
        names(&self.run(command).await)
    }

    /// Waits until everything has its vector: a search says so.
    async fn settled(&self) {
        while self.run("SEARCH CONCEPT \"anything\"").await.get("warnings").is_some() {
            tests::again().await;
        }
        self.words.asked();
    }
}

fn reader(id: &str) -> Origin {
    let mut reader = Principal::new(id, PrincipalKind::User, Role::Participant);
    reader.scopes = [Scope(id.into())].into();
    Origin::new(reader, Cause::of("test"))
}

fn names(answer: &Value) -> Vec<String> {
    answer["result"].as_array().unwrap().iter().map(|hit| hit["name"].as_str().unwrap().to_owned()).collect()
}

const FLEET: &str = r#"UPSERT {
    CONCEPT { {type: "$ConceptType", name: "Thing"} }
    CONCEPT { {type: "Thing", name: "Petrel"} SET ATTRIBUTES { note: "small boat" } }
    CONCEPT { {type: "Thing", name: "Ledger"} SET ATTRIBUTES { note: "old book" } }
}"#;

#[tokio::test]
async fn what_is_alike_is_found_though_it_shares_no_word() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    let found = minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    assert_eq!(names(&found), ["Petrel"]);
    let score = found["result"][0]["metadata"]["_score"].as_f64().unwrap();
    assert!((0.25..1.0).contains(&score), "{score}");
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht" MODE "semantic""#).await, ["Petrel"]);
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht" MODE "keyword""#).await, [""; 0]);
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht" WITH TYPE "$ConceptType""#).await, [""; 0]);
    assert_eq!(minds.names(r#"SEARCH CONCEPT "ledger book""#).await[0], "Ledger");
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht" THRESHOLD 0.9"#).await, [""; 0]);
}

#[tokio::test]
async fn a_search_by_meaning_reflects_writes_and_changes_at_once() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    minds.run(r#"UPDATE ?t SET ATTRIBUTES { note: "old book" } WHERE { ?t {type: "Thing", name: "Petrel"} }"#).await;
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht""#).await, [""; 0]);
    minds.run(r#"UPSERT { CONCEPT { {type: "Thing", name: "Osprey"} SET ATTRIBUTES { aliases: ["vessel"] } } }"#).await;
    assert_eq!(minds.names(r#"SEARCH CONCEPT "ship""#).await, ["Osprey"]);
    minds.run(r#"DELETE CONCEPT ?t DETACH WHERE { ?t {type: "Thing", name: "Osprey"} }"#).await;
    assert_eq!(minds.names(r#"SEARCH CONCEPT "ship""#).await, [""; 0]);
}

#[tokio::test]
async fn nothing_is_embedded_twice() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    let asked = minds.words.asked();
    assert_eq!(asked.len(), 4, "what is new, and what was searched: {asked:?}");
    minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    minds.nexus.forget(&"mind".into());
    minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    assert_eq!(minds.words.asked(), [""; 0], "a mind that wakes knows what it meant");
    let minds = minds.again().await;
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht""#).await, ["Petrel"]);
    assert_eq!(minds.words.asked(), ["yacht"], "so does another daemon, which has not heard the question yet");
    minds.run(r#"SEARCH CONCEPT "yacht" MODE "keyword""#).await;
    minds.run(r#"FIND(?t) WHERE { ?t {type: "Thing"} }"#).await;
    assert_eq!(minds.words.asked(), [""; 0]);
}

#[tokio::test]
async fn what_has_no_meaning_or_is_refused_asks_no_embedder() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    assert_eq!(minds.names(r#"SEARCH CONCEPT " ""#).await, [""; 0]);
    let id: NexusId = "mind".into();
    let wrong = Request::new(r#"SEARCH CONCEPT "yacht" MODE "telepathy""#);
    let refused = minds.nexus.execute(&id, wrong, &Origin::system("test")).await.unwrap();
    assert_eq!(refused["error"]["kind"], "parameter", "{refused}");
    let tried = Request { dry_run: true, ..Request::new(r#"SEARCH CONCEPT "yacht""#) };
    minds.nexus.execute(&id, tried, &Origin::system("test")).await.unwrap();
    assert_eq!(minds.words.asked(), [""; 0]);
}

/// Whoever waits goes away, another asks, a second mind says the same, and the first is let go: each text once.
#[tokio::test]
async fn a_text_is_embedded_once_whoever_asks_for_it() {
    let minds = Minds::new().await;
    let fleet: String = (0..50)
        .map(|n| format!(r#"CONCEPT {{ {{type: "Thing", name: "t{n}"}} SET ATTRIBUTES {{ note: "the same boat" }} }}"#))
        .collect();
    let other: NexusId = "other".into();
    minds.run(FLEET).await;
    minds.run(&format!("UPSERT {{ {fleet} }}")).await;
    for command in [FLEET.to_owned(), format!("UPSERT {{ {fleet} }}")] {
        minds.nexus.execute(&other, Request::new(command), &Origin::system("test")).await.unwrap();
    }
    let gate = Arc::new(Semaphore::new(0));
    *minds.words.gate.lock().unwrap() = Some(gate.clone());
    let search = |id: &NexusId| {
        let (nexus, id) = (minds.nexus.clone(), id.clone());
        let origin = Origin::system("test");
        tokio::spawn(
            async move { nexus.execute(&id, Request::new(r#"SEARCH CONCEPT "yacht""#), &origin).await.unwrap() },
        )
    };
    let impatient = search(&"mind".into());
    minds.words.entered.acquire().await.unwrap().forget();
    impatient.abort();
    assert!(impatient.await.unwrap_err().is_cancelled(), "it went away while its texts were being embedded");
    let all = [search(&"mind".into()), search(&other), search(&"mind".into())];
    gate.add_permits(1_000);
    for search in all {
        search.await.unwrap();
    }
    for id in ["mind", "other"] {
        while search(&id.into()).await.unwrap().get("warnings").is_some() {
            tests::again().await;
        }
    }
    minds.nexus.forget(&"mind".into());
    search(&"mind".into()).await.unwrap();
    let asked = minds.words.asked();
    let once: std::collections::HashSet<&String> = asked.iter().collect();
    assert_eq!(once.len(), asked.len(), "{asked:?}");
    assert!(asked.len() > 50);
}

#[tokio::test]
async fn a_text_that_is_refused_keeps_no_other_from_being_read() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    minds
        .run(r#"UPSERT { CONCEPT { {type: "Thing", name: "Bad"} SET ATTRIBUTES { note: "unspeakable boat" } } }"#)
        .await;
    let found = minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    assert_eq!((names(&found), found.get("warnings")), (vec!["Petrel".to_owned()], None));
    minds.run(r#"UPDATE ?t SET ATTRIBUTES { note: "boat" } WHERE { ?t {type: "Thing", name: "Bad"} }"#).await;
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht" LIMIT 1"#).await, ["Bad"]);
}

#[tokio::test]
async fn vectors_that_cannot_be_read_are_made_again() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    let file = minds.folder.path().join("vectors.redb");
    let whole = std::fs::read(&file).unwrap();
    let Minds { mut nexus, words, store, folder } = minds;
    let rots = [0, whole.len() / 3, whole.len() / 2, whole.len() - 100].map(|at| {
        let mut rotten = whole.clone();
        rotten[at..at + 64].fill(0xa5);
        rotten
    });
    for rotten in rots.into_iter().chain([b"rot".to_vec(), Vec::new()]) {
        drop(nexus);
        std::fs::write(&file, rotten).unwrap();
        let minds = Minds {
            nexus: Nexus::new(store.clone()),
            words: words.clone(),
            store: store.clone(),
            folder: tempfile::tempdir().unwrap(),
        };
        nexus = Nexus::new(store.clone()).with_embedder(Arc::new(words.clone()), Some(&file));
        let minds = Minds { nexus: nexus.clone(), ..minds };
        minds.settled().await;
        assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht""#).await, ["Petrel"]);
        let again = Nexus::new(store.clone()).with_embedder(Arc::new(words.clone()), None);
        drop((std::mem::replace(&mut nexus, again), minds.nexus.clone()));
        let Minds { nexus: old, .. } = minds;
        drop(old);
        let kept = Nexus::new(store.clone()).with_embedder(Arc::new(words.clone()), Some(&file));
        nexus = kept;
        let minds = Minds {
            nexus: nexus.clone(),
            words: words.clone(),
            store: store.clone(),
            folder: tempfile::tempdir().unwrap(),
        };
        words.asked();
        minds.run(r#"SEARCH CONCEPT "yacht""#).await;
        assert_eq!(words.asked(), ["yacht"], "what was made again is kept again");
    }
    drop(folder);
}

#[tokio::test]
async fn a_search_by_meaning_shows_only_what_its_reader_may_see() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    minds
        .run(
            r#"UPSERT { CONCEPT { {type: "Thing", name: "Secret"} SET ATTRIBUTES { note: "small boat" } } }
               WITH METADATA { access_scopes: ["user:ada"] }"#,
        )
        .await;
    let search = r#"SEARCH CONCEPT "yacht" LIMIT 1"#;
    assert_eq!(names(&minds.ask(search, &reader("user:bob")).await), ["Petrel"]);
    let mut all = names(&minds.ask(r#"SEARCH CONCEPT "yacht""#, &reader("user:ada")).await);
    all.sort();
    assert_eq!(all, ["Petrel", "Secret"]);
}

#[tokio::test]
async fn what_is_hidden_from_a_searcher_keeps_it_from_no_meaning() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    let (ada, bob) = (reader("user:ada"), reader("user:bob"));
    let search = r#"SEARCH CONCEPT "yacht" LIMIT 1"#;
    assert_eq!(names(&minds.ask(search, &bob).await), ["Petrel"]);
    // From here on the embedder does not get on.
    *minds.words.gate.lock().unwrap() = Some(Arc::new(Semaphore::new(0)));
    let hidden: String = (0..200)
        .map(|n| format!(r#"CONCEPT {{ {{type: "Thing", name: "t{n}"}} SET ATTRIBUTES {{ note: "thing {n}" }} }}"#))
        .collect();
    minds.run(&format!(r#"UPSERT {{ {hidden} }} WITH METADATA {{ access_scopes: ["user:ada"] }}"#)).await;
    let seen = minds.ask(search, &ada).await;
    assert!(seen["warnings"].to_string().contains("have no vector yet"), "{seen}");
    let found = minds.ask(search, &bob).await;
    assert_eq!((names(&found), found.get("warnings")), (vec!["Petrel".to_owned()], None), "{found}");
}

#[tokio::test]
async fn the_commons_is_searched_beside_a_mind() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    let shared = Request::new(
        r#"UPSERT { CONCEPT { {type: "Knowledge", name: "how to moor a ship"} SET ATTRIBUTES { access_scopes: ["*"] } } }"#,
    );
    let operator = Principal::new("user:op", PrincipalKind::User, Role::Operator);
    let answer = minds.nexus.execute(&"commons".into(), shared, &Origin::new(operator, Cause::of("test"))).await;
    assert!(answer.as_ref().unwrap().get("error").is_none(), "{answer:?}");
    let mut found = minds.names(r#"SEARCH CONCEPT "yacht""#).await;
    found.sort();
    assert_eq!(found, ["Petrel", "how to moor a ship"]);
    let id: NexusId = "commons".into();
    let own =
        minds.nexus.execute(&id, Request::new(r#"SEARCH CONCEPT "yacht""#), &Origin::system("test")).await.unwrap();
    assert_eq!(names(&own), ["how to moor a ship"]);
}

#[tokio::test]
async fn an_embedder_out_of_order_leaves_the_words() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    minds.words.out_of_order.store(true, Ordering::SeqCst);
    let found = minds.run(r#"SEARCH CONCEPT "petrel yacht""#).await;
    assert_eq!(names(&found), ["Petrel"]);
    assert!(found["warnings"].to_string().contains("out of order"), "{found}");
    minds.words.out_of_order.store(false, Ordering::SeqCst);
    let found = minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    assert!(found["warnings"].to_string().contains("out of order"), "it is left alone for a while: {found}");
    let minds = minds.again().await;
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht""#).await, ["Petrel"]);
}

#[tokio::test]
async fn many_texts_are_read_in_the_background_and_that_is_said() {
    let minds = Minds::new().await;
    minds.run(FLEET).await;
    for part in 0..4 {
        let blocks: String = (0..50)
            .map(|n| {
                format!(
                    r#"CONCEPT {{ {{type: "Thing", name: "t{part}-{n}"}} SET ATTRIBUTES {{ note: "thing {n}" }} }}"#
                )
            })
            .collect();
        minds.run(&format!("UPSERT {{ {blocks} }}")).await;
    }
    let found = minds.run(r#"SEARCH CONCEPT "yacht""#).await;
    assert!(found["warnings"].to_string().contains("have no vector yet"), "{found}");
    minds.settled().await;
    assert_eq!(minds.names(r#"SEARCH CONCEPT "yacht""#).await, ["Petrel"]);
    assert_eq!(minds.names(r#"SEARCH CONCEPT "thing 7" LIMIT 4"#).await.len(), 4);
}

#[tokio::test]
async fn a_mind_of_many_scripts_has_an_embedder_of_its_own() {
    let minds = Minds::new().await;
    let world = Words::named(MULTILINGUAL);
    let nexus = minds.nexus.clone().with_multilingual_embedder(Arc::new(world.clone()));
    let minds = Minds { nexus, ..minds };
    let said = |name: &str, text: &str| {
        format!(
            r#"UPSERT {{ CONCEPT ?f {{ {{type: "Thing", name: "{name}"}} SET ATTRIBUTES {{ note: "{text}" }} }} }}"#
        )
    };
    let warns = |found: &Value| found["warnings"].to_string().contains(nexus::UNKNOWN_SCRIPT);
    minds.run(r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Thing"} SET ATTRIBUTES { label: "东西 もの 物件 物体 什么东西 すべてのもの" } } }"#).await;
    // The labels of the types are in other scripts, but nobody spoke any of them.
    minds.run(&said("e1", "old yacht")).await;
    let found = minds.run(r#"SEARCH CONCEPT "boat" WITH TYPE "Thing" MODE "semantic""#).await;
    assert_eq!((names(&found), warns(&found), world.asked().len()), (vec!["e1".to_owned()], false, 0));
    let found = minds.run(r#"SEARCH CONCEPT "船" WITH TYPE "Thing" MODE "semantic" THRESHOLD 0.0"#).await;
    assert!(warns(&found), "{found}");

    let asked = minds.words.asked();
    assert!(asked.iter().any(|text| text.contains("yacht")), "{asked:?}");
    minds
        .run(&said(
            "e2",
            "小兰 住在 杭州 她 有 一艘 船 妹妹 也 喜欢 大海 和 阳光 很多 年 前 就 认识 了 老王 家 的 孩子 们",
        ))
        .await;
    minds.settled().await;
    let found = minds.run(r#"SEARCH CONCEPT "船" WITH TYPE "Thing" MODE "semantic" THRESHOLD 0.0"#).await;
    assert!(!warns(&found), "{found}");
    // All vectors are of the other embedder now, which is asked for those of the English texts, too.
    let asked = world.asked();
    assert!(
        asked.iter().any(|text| text.contains("yacht")) && asked.iter().any(|text| text.contains("小兰")),
        "{asked:?}"
    );
    let found = minds.run(r#"SEARCH CONCEPT "boat" WITH TYPE "Thing" MODE "semantic""#).await;
    assert_eq!((names(&found), minds.words.asked().len()), (vec!["e1".to_owned()], 0));
}

#[tokio::test]
async fn the_daemon_searches_by_meaning_and_the_house_pays() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [("data", folder.path().display().to_string()), ("listen", "127.0.0.1:0".into())];
    let config = runtime::Config::load(None, &flags).unwrap();
    let model = Scripted::new(honest).taking_as_alike(&[("yacht", "boat")]);
    let provider = model.provider("scripted").unwrap();
    let price = Price { input: 1_000_000, output: 0, cached: None };
    let embedder = Model {
        provider: provider.clone(),
        name: "embedder".into(),
        price,
        context_tokens: 512,
        small: false,
        tools: false,
    };
    let parts = runtime::Parts {
        backend: Arc::new(Memory::default()),
        clock: Arc::new(SystemClock) as Arc<dyn Clock>,
        models: models_of(&provider).with_embedder(embedder),
        first: None,
        schemas: knowledge::unit::versions::Schemas::default(),
    };
    let config = runtime::Config { house_micro_usd: 1_000_000, ..config };
    let daemon = runtime::Daemon::start(&config, parts).await.unwrap();
    let op = Client::new(format!("http://{}", daemon.address), daemon.token.clone());
    op.post("/v1/nexus/commons/kip", json!({"command": FLEET})).await.expect(StatusCode::OK);
    let search = json!({"command": "SEARCH CONCEPT \"yacht\""});
    let mut found = op.post("/v1/nexus/commons/kip", search.clone()).await.expect(StatusCode::OK);
    while found.get("warnings").is_some() {
        found = op.post("/v1/nexus/commons/kip", search.clone()).await.expect(StatusCode::OK);
    }
    assert_eq!(names(&found), ["Petrel"]);
    let asked = model.embedded();
    let once: std::collections::HashSet<&String> = asked.iter().collect();
    assert_eq!(once.len(), asked.len(), "nothing is paid twice");
    let house = daemon.app.store().account("house").await.unwrap().unwrap();
    let read: usize = model
        .embedded()
        .iter()
        .map(|text| text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).count())
        .sum();
    assert_eq!((house.spent.tokens, house.spent.micro_usd, house.holds.len()), (read as i64, read as i64, 0));
    daemon.stop().await.unwrap();
}
