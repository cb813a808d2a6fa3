//! What a nexus does beyond the language: journal, undo, looking back, capsules, rights, and a store that fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use nexus::{Export, Nexus, NexusId, Request, WriteAuthority};
use reqwest::StatusCode;
use serde_json::{Value, json};
use store::faulty::{Fault, Faulty};
use store::{
    Backend, Batch, Cause, Clock, Key, Kind, ManualClock, Memory, Origin, Principal, PrincipalKind, Role, Scope, Store,
    Versioned,
};
use tests::{TestDaemon, honest};

struct Mind {
    nexus: Nexus,
    id: NexusId,
    origin: Origin,
}

impl Mind {
    async fn on(backend: Arc<dyn Backend>) -> Self {
        let store = Store::open(backend, Arc::new(ManualClock::default())).await.unwrap();
        Self { nexus: Nexus::new(store), id: "mind".into(), origin: Origin::system("test") }
    }

    async fn new() -> Self {
        Self::on(Arc::new(Memory::default())).await
    }

    async fn run(&self, command: impl Into<String>) -> Value {
        self.nexus.execute(&self.id, Request::new(command), &self.origin).await.unwrap()
    }

    async fn ok(&self, command: impl Into<String>) -> Value {
        let answer = self.run(command).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// The number of the last journal entry.
    async fn seq(&self) -> u64 {
        self.nexus.snapshot(&self.id).await.unwrap().seq
    }

    async fn undo(&self, seq: u64) -> Value {
        self.nexus.undo(&self.id, seq, &self.origin).await.unwrap()
    }

    /// Everything in it, as one text.
    async fn all(&self) -> String {
        let concepts = self.ok(r#"FIND(?x) WHERE { ?x {type: "Boat"} UNION { ?x {type: "Harbour"} } }"#).await;
        let links = self.ok("FIND(?l) WHERE { ?l (?s, \"moored_in\", ?o) }").await;
        format!("{concepts}\n{links}")
    }
}

const WORLD: &str = r#"UPSERT {
  CONCEPT { {type: "$ConceptType", name: "Boat"} SET ATTRIBUTES { description: "it floats" } }
  CONCEPT { {type: "$ConceptType", name: "Harbour"} SET ATTRIBUTES { description: "it waits" } }
  CONCEPT { {type: "$PropositionType", name: "moored_in"} SET ATTRIBUTES { description: "lies in", subject_types: ["*"], object_types: ["*"] } }
  CONCEPT ?faro { {type: "Harbour", name: "Faro"} }
  CONCEPT ?petrel { {type: "Boat", name: "Petrel"} SET ATTRIBUTES { tons: 40 } SET PROPOSITIONS { ("moored_in", ?faro) } }
} WITH METADATA { source: "log" }"#;

async fn world() -> Mind {
    let mind = Mind::new().await;
    mind.ok(WORLD).await;
    mind
}

#[tokio::test]
async fn the_graph_is_read_as_it_stood_after_any_entry() {
    let mind = world().await;
    let first = mind.seq().await;
    mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "Petrel"} SET ATTRIBUTES { tons: 41 } } CONCEPT { {type: "Boat", name: "Heron"} } }"#).await;
    mind.ok(r#"DELETE CONCEPT ?h DETACH WHERE { ?h {type: "Harbour", name: "Faro"} }"#).await;
    let boats = |seq: u64| {
        format!(
            r#"FIND(?b.name, ?b.attributes.tons, ?b.metadata._version) WHERE {{ ?b {{type: "Boat"}} }} AS OF SEQ {seq}"#
        )
    };
    assert_eq!(mind.ok(boats(first)).await, json!([["Petrel", 40, 1]]));
    assert_eq!(mind.ok(boats(first + 1)).await, json!([["Petrel", 41, 2], ["Heron", null, 1]]));
    let moored = |seq: u64| format!(r#"FIND(?b.name, ?h.name) WHERE {{ (?b, "moored_in", ?h) }} AS OF SEQ {seq}"#);
    assert_eq!(mind.ok(moored(first + 1)).await, json!([["Petrel", "Faro"]]));
    assert_eq!(mind.ok(moored(first + 2)).await, json!([]));
    assert_eq!(
        mind.ok("FIND(?t.name) WHERE { ?t {type: \"$ConceptType\", name: \"Boat\"} } AS OF SEQ 5").await,
        json!([])
    );
    assert_eq!(mind.run(boats(first + 9)).await["error"]["kind"], "not_found");
    // Waking does not change what was.
    mind.nexus.forget(&mind.id);
    assert_eq!(mind.ok(moored(first + 1)).await, json!([["Petrel", "Faro"]]));
}

#[tokio::test]
async fn the_journal_records_author_cause_command_and_old_values() {
    let mind = world().await;
    let ada = Origin::new(Principal::new("user:ada", PrincipalKind::User, Role::Operator), Cause::of("canvas:x@7"));
    let request = Request::with(
        r#"UPSERT { CONCEPT { {type: "Boat", name: "Petrel"} SET ATTRIBUTES { tons: $t } } }"#,
        json!({"t": 7}),
    );
    mind.nexus.execute(&mind.id, request, &ada).await.unwrap();
    let entry = mind.nexus.journal(&mind.id, mind.seq().await - 1, 10).await.unwrap().remove(0);
    assert_eq!(
        (&entry["by"], &entry["cause"], &entry["kind"]),
        (&json!("user:ada"), &json!(["canvas:x@7"]), &json!("kml"))
    );
    assert!(
        entry["data"]["command"].as_str().unwrap().contains("$t") && entry["data"]["parameters"] == json!({"t": 7})
    );
    assert!(entry["data"]["changed"].to_string().contains("\"tons\":40"), "{entry}");
    // What changed nothing is not in the journal.
    let before = mind.seq().await;
    mind.ok(WORLD.replace("tons: 40", "tons: 7")).await;
    assert_eq!(mind.seq().await, before);
}

/// The concept ids in an answer.
fn ids_in(answer: &Value) -> Vec<String> {
    let one = |id: &Value| id.as_str().unwrap().to_owned();
    answer.as_array().unwrap().iter().map(one).collect()
}

#[tokio::test]
async fn ids_and_cursors_do_not_reveal_the_count_of_hidden_elements() {
    let store = Store::open(Arc::new(Memory::default()), Arc::new(ManualClock::default())).await.unwrap();
    let mind = Mind { nexus: Nexus::new(store.clone()), id: "mind".into(), origin: Origin::system("test") };
    mind.ok(WORLD).await;
    let ada = Principal::new("user:ada", PrincipalKind::User, Role::Observer);
    let ada = Origin::new(ada, Cause::default());
    let boats = |n: std::ops::Range<u32>, scopes: &str| {
        let each =
            n.map(|n| format!(r#"CONCEPT {{ {{type: "Boat", name: "{n:03}"}} }}"#)).collect::<Vec<_>>().join(" ");
        format!("UPSERT {{ {each} }} WITH METADATA {{ access_scopes: [\"{scopes}\"] }}")
    };
    mind.ok(boats(0..40, "public")).await;
    mind.ok(boats(40..140, "user:eve")).await;
    mind.ok(boats(140..180, "public")).await;
    let all = r#"FIND(?b.id) WHERE { ?b {type: "Boat"} }"#;
    let shown = async |command: &str| mind.nexus.execute(&mind.id, Request::new(command), &ada).await.unwrap();
    let ids = ids_in(&shown(all).await["result"]);
    assert_eq!(ids.len(), 81);
    assert!(
        ids.iter().all(|id| id.len() == 9 && id.starts_with("C:") && id[2..].bytes().all(|b| b.is_ascii_lowercase()))
    );
    // Neither their order nor their distance says when each was created.
    let rising = ids.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!((20..60).contains(&rising), "{rising} of 80 rise");
    // A number is no id here, and the place in a cursor is none.
    for no in 1..400 {
        let found = shown(&format!(r#"FIND(?b) WHERE {{ ?b {{id: "C:{no}"}} }}"#)).await;
        assert_eq!(found["result"], json!([]));
    }
    for command in [all, r#"DESCRIBE CONCEPT TYPES"#, r#"EXPORT ?b WHERE { ?b {type: "Boat"} }"#] {
        let (mut page, mut pages) = (mind.run(format!("{command} LIMIT 3")).await, 0);
        while let Some(cursor) = page["next_cursor"].as_str() {
            let place = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, cursor).unwrap();
            let place: Value = serde_json::from_slice(&place).unwrap();
            let number = place["p"].as_u64().or_else(|| place["p"]["ids"][0].as_u64()).unwrap();
            assert!(number > 10_000, "{command}: {place}");
            page = mind.run(format!("{command} LIMIT 3 CURSOR \"{cursor}\"")).await;
            assert!(page.get("error").is_none(), "{page}");
            pages += 1;
        }
        assert!(pages > 1, "{command}: {page}");
    }
    // A mind from before there were keys keeps its ids, and hides what is created from then on.
    let key = Key::new(Kind::Nexus, mind.id.clone());
    let mut head = store.document::<Value>(&key).await.unwrap().unwrap().value;
    head.as_object_mut().unwrap().remove("numbering").unwrap();
    store.commit(Batch::new(&mind.origin).put(key, &head)).await.unwrap();
    mind.nexus.forget(&mind.id);
    let faro = r#"FIND(?h.id) WHERE { ?h {type: "Harbour", name: "Faro"} }"#;
    assert_eq!(mind.ok(faro).await, json!(["C:15"]));
    assert_eq!(mind.ok(r#"FIND(?h.name) WHERE { ?h {id: "C:15"} }"#).await, json!(["Faro"]));
    mind.ok(boats(300..303, "public")).await;
    let newer = r#"FIND(?b.id) WHERE { ?b {type: "Boat"} FILTER(?b.name > "2" && ?b.name < "4") }"#;
    let ids = ids_in(&mind.ok(newer).await);
    assert!(ids.iter().all(|id| id[2..].bytes().all(|b| b.is_ascii_lowercase())), "{ids:?}");
    mind.nexus.forget(&mind.id);
    assert_eq!((ids_in(&mind.ok(newer).await), mind.ok(faro).await), (ids, json!(["C:15"])));
}

#[tokio::test]
async fn what_is_taken_out_of_a_mind_is_noted_in_the_same_commit() {
    let store = Store::open(Arc::new(Memory::default()), Arc::new(ManualClock::default())).await.unwrap();
    let mind = Mind { nexus: Nexus::new(store.clone()), id: "mind".into(), origin: Origin::system("test") };
    let fact = |name: &str| {
        format!(
            r#"UPSERT {{ CONCEPT {{ {{type: "Fact", name: "{name}"}} SET ATTRIBUTES {{ statement: "{name}" }} }} }} WITH METADATA {{ author: "user:ada" }}"#
        )
    };
    let delete = |name: &str| format!(r#"DELETE CONCEPT ?f DETACH WHERE {{ ?f {{type: "Fact", name: "{name}"}} }}"#);
    let notes = async || {
        let notes = store.documents::<Value>(Kind::Forgotten, "", 9).await.unwrap();
        let stated =
            |(_, note): (_, Versioned<Value>)| note.value["attributes"]["statement"].as_str().unwrap().to_owned();
        notes.into_iter().map(stated).collect::<BTreeSet<_>>()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    for name in ["a", "b", "c", "d"] {
        mind.ok(fact(name)).await;
    }
    mind.ok(delete("a")).await;
    assert!(notes().await.is_empty(), "nobody would read it");
    let mut signals = mind.nexus.outbox().listen().unwrap();
    assert!(mind.nexus.outbox().listen().is_none(), "there is one reader");
    mind.ok(delete("b")).await;
    assert_eq!(notes().await, set(&["b"]));
    assert_eq!(signals.try_recv(), Ok(()));
    // What says the same is no deletion, another statement is one, and so is the undo that takes a fact out.
    mind.ok(r#"UPDATE ?f SET ATTRIBUTES { note: 1 } WHERE { ?f {type: "Fact", name: "c"} }"#).await;
    assert_eq!(notes().await.len(), 1);
    mind.ok(r#"UPDATE ?f SET ATTRIBUTES { statement: "e" } WHERE { ?f {type: "Fact", name: "c"} }"#).await;
    assert_eq!(notes().await, set(&["b", "c"]));
    mind.ok(fact("f")).await;
    assert!(mind.undo(mind.seq().await).await.get("error").is_none());
    assert_eq!(notes().await, set(&["b", "c", "f"]));
    // The memory of a lifeform keeps the copies itself.
    let call = nexus::kip::Call { command: delete("d"), parameters: Default::default() };
    mind.nexus.write_with(&mind.id, call, &mind.origin, WriteAuthority::Memory, Vec::new()).await.unwrap();
    assert_eq!(notes().await.len(), 3);
}

#[tokio::test]
async fn an_entry_is_undone_unless_something_stands_on_it() {
    let mind = world().await;
    let before = mind.all().await;
    let delete = r#"DELETE CONCEPT ?h DETACH WHERE { ?h {type: "Harbour", name: "Faro"} }"#;
    mind.ok(delete).await;
    let deleted = mind.seq().await;
    assert_eq!(mind.undo(deleted).await["result"], json!({"undone": deleted, "command": delete, "elements": 2}));
    // What comes back is what went, under the same ids, one version on.
    let moored = mind.ok(r#"FIND(?b.name, ?h.name, ?h.id) WHERE { (?b, "moored_in", ?h) }"#).await;
    assert_eq!(moored[0][1], "Faro");
    assert!(before.contains(moored[0][2].as_str().unwrap()), "{moored} is not in {before}");
    mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "New"} } }"#).await;
    let made = mind.seq().await;
    mind.ok(r#"UPDATE ?b SET ATTRIBUTES { tons: 1 } WHERE { ?b {type: "Boat", name: "New"} }"#).await;
    assert_eq!(mind.undo(made).await["error"]["code"], "KIP_3005");
    assert!(mind.undo(made + 1).await.get("error").is_none());
    assert_eq!(mind.ok(r#"FIND(?b.attributes) WHERE { ?b {name: "New"} }"#).await, json!([{}]));
    assert_eq!(mind.undo(9999).await["error"]["kind"], "not_found");
    assert_eq!(
        mind.undo(1).await["error"]["code"].as_str().map(|code| &code[..5]),
        Some("KIP_3"),
        "the birth of a mind is not undone"
    );
    let ada = Origin::new(Principal::new("user:ada", PrincipalKind::User, Role::Participant), Cause::default());
    assert!(mind.nexus.undo(&mind.id, made, &ada).await.unwrap().get("error").is_some());
    // The last first, one after the other, back to where it began; and an undo of an undo brings it back.
    let begun = mind.seq().await;
    for tons in [1, 2, 3] {
        mind.ok(format!(
            r#"UPSERT {{ CONCEPT {{ {{type: "Boat", name: "Stack"}} SET ATTRIBUTES {{ tons: {tons} }} }} }}"#
        ))
        .await;
    }
    let tons = r#"FIND(?b.attributes.tons) WHERE { ?b {type: "Boat", name: "Stack"} }"#;
    assert_eq!(mind.undo(begun + 1).await["error"]["code"], "KIP_3005");
    for (seq, left) in [(begun + 3, json!([2])), (begun + 2, json!([1])), (begun + 1, json!([]))] {
        assert!(mind.undo(seq).await.get("error").is_none());
        assert_eq!(mind.ok(tons).await, left);
    }
    assert_eq!(mind.undo(begun + 3).await["error"]["code"], "KIP_3005", "it is undone already");
    assert!(mind.undo(begun + 6).await.get("error").is_none());
    assert_eq!(mind.ok(tons).await, json!([1]));
    // Nor is a definition taken from under what uses it.
    mind.ok(r#"UPSERT { CONCEPT { {type: "$ConceptType", name: "Buoy"} } }"#).await;
    let defined = mind.seq().await;
    mind.ok(r#"UPSERT { CONCEPT { {type: "Buoy", name: "B1"} } }"#).await;
    assert_eq!(mind.undo(defined).await["error"]["kind"], "immutable");
    // Waking keeps all of it.
    let all = mind.all().await;
    mind.nexus.forget(&mind.id);
    assert_eq!(mind.all().await, all);
}

#[tokio::test]
async fn a_mind_imports_an_exported_capsule_with_its_definitions() {
    let mind = world().await;
    let query = |pattern: &str, hops: usize| Export {
        target: "?x".into(),
        pattern: pattern.into(),
        parameters: serde_json::Map::new(),
        hops,
        name: "boats".into(),
        version: "2.1.0".into(),
    };
    let boats = r#"WHERE { ?x {type: "Boat"} }"#;
    let exported = mind.nexus.export(&mind.id, &query(boats, 1), &mind.origin).await.unwrap();
    let text = exported["result"]["capsule"].as_str().unwrap().to_owned();
    assert!(text.starts_with("// kip-capsule: boats@2.1.0 sha256="), "{text}");
    let other = Mind { id: "other".into(), ..Mind::on(Arc::new(Memory::default())).await };
    let import = |text: String, dry_run: bool| {
        let other = &other;
        async move { other.nexus.import(&other.id, &text, dry_run, &other.origin).await.unwrap() }
    };
    let dry = import(text.clone(), true).await;
    assert_eq!(dry["result"]["diff"]["counts"], json!({"created": 6, "changed": 0, "removed": 0}), "{dry}");
    assert_eq!(dry["result"]["capsule"]["name"], "boats");
    assert_eq!(other.ok(r#"FIND(?b) WHERE { ?b {type: "Boat"} }"#).await, json!([]));
    assert!(import(text.clone(), false).await.get("error").is_none());
    for query in [
        r#"FIND(?b.name, ?b.attributes, ?h.name, ?l.metadata.source) WHERE { ?l (?b, "moored_in", ?h) }"#,
        r#"FIND(?t.attributes) WHERE { ?t {type: "$PropositionType", name: "moored_in"} }"#,
    ] {
        assert_eq!(mind.ok(query).await, other.ok(query).await);
    }
    assert_eq!(
        import(text.clone(), true).await["result"]["diff"]["counts"],
        json!({"created": 0, "changed": 0, "removed": 0})
    );
    let entry = other.nexus.journal(&other.id, other.seq().await - 1, 1).await.unwrap().remove(0);
    assert_eq!((&entry["kind"], &entry["data"]["capsule"]["version"]), (&json!("capsule"), &json!("2.1.0")));
    let forged = import(text.replace("Petrel", "Forged"), false).await;
    assert!(forged["error"]["message"].as_str().unwrap().contains("was changed"), "{forged}");
    assert_eq!(import("FIND(?x) WHERE { ?x {type: \"Boat\"} }".into(), false).await["error"]["kind"], "syntax");
    // An operator's capsule may change what protects the core, a lifeform's own may not.
    let core = r#"UPSERT { CONCEPT { {type: "Person", name: "$self"} SET ATTRIBUTES { core_directives: [] } } }"#;
    let itself = Origin::new(Principal::lifeform("other"), Cause::default());
    assert_eq!(other.nexus.import(&other.id, core, false, &itself).await.unwrap()["error"]["kind"], "immutable");
    assert!(import(core.into(), false).await.get("error").is_none());
}

/// `access_level` and `privacy_settings` decide who reads what (MISSION K9, K11).
#[tokio::test]
async fn what_is_private_is_read_by_its_person_alone() {
    let mind = world().await;
    mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "Ark"} SET ATTRIBUTES { tons: 9 } } } WITH METADATA { author: "user:ada", access_level: "private" }"#).await;
    mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "Gig"} SET ATTRIBUTES { tons: 1 } } } WITH METADATA { author: "user:ada", access_level: "public" }"#).await;
    mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "Odd"} } } WITH METADATA { access_level: "for some" }"#).await;
    let person = |who: &str, more: &str| {
        format!(
            r#"UPSERT {{ CONCEPT {{ {{type: "Person", name: "user:{who}"}} SET ATTRIBUTES {{ id: "user:{who}", person_class: "Human", {more} }} }} }}"#
        )
    };
    mind.ok(person(
        "ada",
        r#"name: "Ada", email: "ada@zzyzx.example", city: "Faro", privacy_settings: {"email_visibility": "private"}"#,
    ))
    .await;
    mind.ok(person("ben", r#"name: "Ben", email: "ben@example", city: "Oslo", privacy_settings: {"profile_visibility": "private", "city_visibility": "public"}"#)).await;
    let reader = |who: &str| Origin::new(Principal::new(who, PrincipalKind::User, Role::Participant), Cause::default());
    let (ada, ben, eve) = (reader("user:ada"), reader("user:ben"), reader("user:eve"));
    let ask = async |command: &str, origin: &Origin| {
        let answer = mind.nexus.execute(&mind.id, Request::new(command), origin).await.unwrap();
        answer.get("result").cloned().unwrap_or_else(|| panic!("{command}: {answer}"))
    };
    let boats = r#"FIND(?b.name) WHERE { ?b {type: "Boat"} FILTER(?b.name != "Petrel") } ORDER BY ?b.name"#;
    assert_eq!(ask(boats, &ada).await, json!(["Ark", "Gig"]));
    assert_eq!(ask(boats, &eve).await, json!(["Gig"]));
    assert_eq!(mind.ok(boats).await, json!(["Ark", "Gig", "Odd"]), "the mind itself sees everything");

    let email = r#"FIND(?p.attributes.email) WHERE { ?p {type: "Person", name: "user:ada"} }"#;
    assert_eq!(ask(email, &ada).await, json!(["ada@zzyzx.example"]));
    for other in [&ben, &eve] {
        for command in [
            email,
            r#"FIND(?p) WHERE { ?p {type: "Person"} FILTER(CONTAINS(?p.attributes.email, "zzyzx")) }"#,
            r#"SEARCH CONCEPT "zzyzx" WITH TYPE "Person" MODE "keyword""#,
            r#"EXPORT ?p WHERE { ?p {type: "Person"} }"#,
            r#"DESCRIBE PRIMER BUDGET 5000"#,
            r#"FIND(?p.attributes.email) WHERE { ?p {type: "Person"} } ORDER BY ?p.attributes.email"#,
        ] {
            let found = ask(command, other).await.to_string();
            assert!(!found.contains("zzyzx"), "{command}: {found}");
        }
    }
    let profile = r#"FIND(?p.attributes) WHERE { ?p {type: "Person", name: "user:ben"} }"#;
    let shown = ask(profile, &eve).await;
    assert_eq!(
        (&shown[0]["city"], &shown[0]["email"], &shown[0]["name"]),
        (&json!("Oslo"), &json!(null), &json!(null))
    );
    assert_eq!(ask(profile, &ben).await[0]["email"], "ben@example");
    // What is private stays its author's, also where another says the same.
    let moored = |who: &str, level: &str| {
        format!(
            r#"UPSERT {{ PROPOSITION {{ ({{type: "Boat", name: "Gig"}}, "moored_in", {{type: "Harbour", name: "Faro"}}) }} }} WITH METADATA {{ source: "{who}", author: "{who}" {level} }}"#
        )
    };
    mind.ok(moored("user:ada", r#", access_level: "private", memo: "qzq""#)).await;
    let links = r#"FIND(?l.metadata) WHERE { ?l ({type: "Boat", name: "Gig"}, "moored_in", ?h) }"#;
    for level in ["", r#", access_level: "public""#] {
        mind.ok(moored("user:ben", level)).await;
        assert_eq!(ask(links, &eve).await, json!([]));
        assert!(!ask(links, &ben).await.to_string().contains("qzq") && ask(links, &ada).await != json!([]), "{level}");
    }
    mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "Ark"} } } WITH METADATA { author: "user:ben" }"#).await;
    assert_eq!((ask(boats, &ada).await, ask(boats, &ben).await), (json!(["Ark", "Gig"]), json!(["Gig"])));
    // When and about what a person speaks is nobody else's either.
    mind.ok(person("eve", r#"interaction_summary: {interaction_count: 7}"#)).await;
    let summary = r#"FIND(?p.attributes.interaction_summary) WHERE { ?p {type: "Person", name: "user:eve"} }"#;
    assert_eq!(ask(summary, &eve).await, json!([{"interaction_count": 7}]));
    assert_eq!(ask(summary, &ben).await, json!([null]));
    // What is private no more is found again.
    mind.ok(r#"UPDATE ?p SET ATTRIBUTES { privacy_settings: {} } WHERE { ?p {type: "Person", name: "user:ada"} }"#)
        .await;
    assert!(
        ask(r#"SEARCH CONCEPT "zzyzx" WITH TYPE "Person" MODE "keyword""#, &eve)
            .await
            .to_string()
            .contains("ada@zzyzx")
    );
}

#[tokio::test]
async fn what_is_not_in_ones_scopes_is_not_there_for_any_command() {
    let mind = world().await;
    mind.ok(r#"UPSERT { CONCEPT ?s { {type: "Boat", name: "Secret"} SET ATTRIBUTES { tons: 3 } SET PROPOSITIONS { ("moored_in", {type: "Harbour", name: "Faro"}) } } } WITH METADATA { access_scopes: ["team:red"] }"#).await;
    let person = |scopes: &[&str]| {
        let mut principal = Principal::new("user:ada", PrincipalKind::User, Role::Participant);
        principal.scopes.extend(scopes.iter().map(|scope| Scope((*scope).into())));
        Origin::new(principal, Cause::default())
    };
    let (stranger, red) = (person(&[]), person(&["team:red"]));
    for (command, hidden, seen) in [
        (r#"FIND(?b.name) WHERE { ?b {type: "Boat"} }"#, json!(["Petrel"]), json!(["Petrel", "Secret"])),
        (r#"FIND(COUNT(?b)) WHERE { ?b {type: "Boat"} }"#, json!([1]), json!([2])),
        (r#"FIND(COUNT(?l)) WHERE { ?l (?b, "moored_in", ?h) }"#, json!([1]), json!([2])),
        (
            r#"FIND(?b.name) WHERE { (?b, "moored_in"{1,2}, {name: "Faro"}) }"#,
            json!(["Petrel"]),
            json!(["Petrel", "Secret"]),
        ),
        (r#"FIND(?b) WHERE { ?b {name: "Secret"} NOT { ?b {type: "Harbour"} } } LIMIT 0"#, json!(null), json!(null)),
        (
            r#"FIND(?b.name) WHERE { ?b {type: "Boat"} } ORDER BY ?b.attributes.tons LIMIT 1"#,
            json!(["Petrel"]),
            json!(["Secret"]),
        ),
    ] {
        for (origin, wanted) in [(&stranger, hidden), (&red, seen)] {
            let answer = mind.nexus.execute(&mind.id, Request::new(command), origin).await.unwrap();
            assert_eq!(answer.get("result").cloned().unwrap_or_default(), wanted, "{command}");
        }
    }
    for command in [
        "SEARCH \"secret\"",
        "DESCRIBE PRIMER BUDGET 5000",
        "EXPORT ?x WHERE { ?x {type: \"Boat\"} }",
        "SEARCH PROPOSITION \"moored\"",
        "DESCRIBE CONFLICTS",
    ] {
        let answer = mind.nexus.execute(&mind.id, Request::new(command), &stranger).await.unwrap();
        assert!(
            !answer.to_string().contains("Secret") && !answer.to_string().contains("team:red"),
            "{command}: {answer}"
        );
    }
}

#[tokio::test]
async fn a_store_that_fails_leaves_no_trace_in_the_mind() {
    let disk = Arc::new(Memory::default());
    let faults = [Fault::None, Fault::None, Fault::None, Fault::Before, Fault::Before, Fault::Before, Fault::Before];
    let mind = Mind::on(Arc::new(Faulty::new(disk, faults))).await;
    mind.ok(WORLD).await;
    let before = mind.all().await;
    let writes: Vec<_> = (0..8)
        .map(|n| {
            let (nexus, id, origin) = (mind.nexus.clone(), mind.id.clone(), mind.origin.clone());
            let text = format!(r#"UPSERT {{ CONCEPT {{ {{type: "Boat", name: "b{n}"}} SET PROPOSITIONS {{ ("moored_in", {{type: "Harbour", name: "Faro"}}) }} }} }}"#);
            tokio::spawn(async move { nexus.execute(&id, Request::new(text), &origin).await })
        })
        .collect();
    let mut failed = 0;
    for write in writes {
        failed += usize::from(write.await.unwrap().is_err());
    }
    assert!(failed > 0, "no write met the fault");
    let boats = mind.ok(r#"FIND(COUNT(?b)) WHERE { ?b {type: "Boat"} }"#).await;
    assert_eq!(boats, json!([1 + 8 - failed]));
    if failed == 8 {
        assert_eq!(mind.all().await, before);
    }
    // It goes on as if nothing had been, and wakes as it stands.
    mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "after"} } }"#).await;
    let all = mind.all().await;
    mind.nexus.forget(&mind.id);
    assert_eq!(mind.all().await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_on_one_mind_read_their_own_writes() {
    let mind = world().await;
    let tasks: Vec<_> = (0..64)
        .map(|writer| {
            let (nexus, id, origin) = (mind.nexus.clone(), mind.id.clone(), mind.origin.clone());
            tokio::spawn(async move {
                for n in 0..20 {
                    let name = format!("w{writer}n{n}");
                    let write = format!(
                        r#"UPSERT {{ CONCEPT {{ {{type: "Boat", name: "{name}"}} SET ATTRIBUTES {{ n: {n} }} }} }}"#
                    );
                    nexus.execute(&id, Request::new(write), &origin).await.unwrap();
                    let read = format!(r#"FIND(?b.attributes.n) WHERE {{ ?b {{type: "Boat", name: "{name}"}} }}"#);
                    let answer = nexus.execute(&id, Request::new(read), &origin).await.unwrap();
                    assert_eq!(answer["result"], json!([n]), "a writer does not see what it wrote");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(mind.ok(r#"FIND(COUNT(?b)) WHERE { ?b {type: "Boat"} }"#).await, json!([1281]));
}

#[tokio::test]
async fn a_mind_nobody_comes_to_is_let_go_and_wakes_as_it_was() {
    let clock = ManualClock::default();
    let store = Store::open(Arc::new(Memory::default()), Arc::new(clock.clone()) as Arc<dyn Clock>).await.unwrap();
    let (nexus, origin) = (Nexus::new(store), Origin::system("test"));
    let run = |id: &'static str, command: &'static str| {
        let (nexus, origin) = (nexus.clone(), origin.clone());
        async move { nexus.execute(&id.into(), Request::new(command), &origin).await.unwrap() }
    };
    run("a", WORLD).await;
    let before = run("a", r#"FIND(?b) WHERE { ?b {type: "Boat"} }"#).await;
    run("b", "DESCRIBE DOMAINS").await;
    assert_eq!(nexus.loaded_count(), 3, "two minds and the commons");
    clock.advance_ms(31 * 60 * 1000);
    run("b", "DESCRIBE DOMAINS").await;
    assert_eq!(nexus.loaded_count(), 2);
    assert_eq!(run("a", r#"FIND(?b) WHERE { ?b {type: "Boat"} }"#).await, before);
}

#[tokio::test]
async fn a_mind_refuses_an_export_that_is_too_large_or_misnamed() {
    let mind = world().await;
    let note = "long ".repeat(4000);
    for n in 0..60 {
        mind.ok(format!(
            r#"UPSERT {{ CONCEPT {{ {{type: "Boat", name: "big{n}"}} SET ATTRIBUTES {{ note: "{note}" }} }} }}"#
        ))
        .await;
    }
    let query = |name: &str| -> Export {
        serde_json::from_value(json!({"target": "?b", "pattern": r#"WHERE { ?b {type: "Boat"} }"#, "name": name}))
            .unwrap()
    };
    let large = mind.nexus.export(&mind.id, &query("boats"), &mind.origin).await.unwrap();
    assert_eq!(large["error"]["code"], "KIP_4002");
    assert!(large["error"]["hint"].as_str().unwrap().contains("LIMIT"), "{large}");
    for name in ["", "two words", "a\nb", "/etc", &"x".repeat(65)] {
        let refused = mind.nexus.export(&mind.id, &query(name), &mind.origin).await.unwrap();
        assert_eq!(refused["error"]["kind"], "parameter", "{name:?}");
    }
}

#[tokio::test]
async fn the_doors_of_a_mind_stand_over_http() {
    let test = TestDaemon::start(honest).await;
    let (id, _) = test.lifeform().await;
    let ada = test.person("user:ada", "participant").await;
    let made = test
        .operator
        .post(
            &format!("/v1/nexus/{id}/kip"),
            json!({"commands": [WORLD, "FIND(?b.name) WHERE { ?b {type: \"Boat\"} }"]}),
        )
        .await
        .expect(StatusCode::OK);
    assert_eq!(made["result"][1]["result"], json!(["Petrel"]));
    let columns = json!({
        "command": "FIND(?b.name, ?h.name) WHERE { (?b, \"moored_in\", ?h) }",
        "result_shape": "columns",
        "readonly": true,
    });
    assert_eq!(
        ada.post(&format!("/v1/nexus/{id}/kip"), columns).await.expect(StatusCode::OK)["result"],
        json!([["Petrel"], ["Faro"]])
    );
    let journal = test.operator.get(&format!("/v1/nexus/{id}/journal?after=5")).await.expect(StatusCode::OK);
    let seq = journal["next_after"].as_u64().unwrap();
    ada.get(&format!("/v1/nexus/{id}/journal")).await.refused(403, "forbidden");
    let query = json!({"target": "?b", "pattern": "WHERE { ?b {type: \"Boat\"} }", "hops": 1});
    let capsule = test.operator.post(&format!("/v1/nexus/{id}/export"), query).await.expect(StatusCode::OK);
    assert_eq!((&capsule["result"]["concepts"], &capsule["result"]["propositions"]), (&json!(5), &json!(1)));
    assert!(
        test.operator
            .post(&format!("/v1/lifeforms/{id}/nexus/undo"), json!({"seq": seq}))
            .await
            .expect(StatusCode::OK)
            .get("error")
            .is_none()
    );
    let text = capsule["result"]["capsule"].as_str().unwrap().to_owned();
    let dry =
        test.operator.text(&format!("/v1/nexus/{id}/capsules?dry_run=true"), text.clone()).await.expect(StatusCode::OK);
    assert_eq!(dry["result"]["diff"]["counts"]["created"], 6);
    let refused = ada.text(&format!("/v1/nexus/{id}/capsules"), text.clone()).await.expect(StatusCode::OK);
    assert_eq!(refused["error"]["kind"], "execution");
    assert!(
        test.operator
            .text(&format!("/v1/nexus/{id}/capsules"), text)
            .await
            .expect(StatusCode::OK)
            .get("error")
            .is_none()
    );
    assert_eq!(
        test.operator
            .post("/v1/nexus/commons/kip", json!({"command": "DESCRIBE DOMAINS"}))
            .await
            .expect(StatusCode::OK)["result"][0],
        "CoreSchema"
    );
    test.operator
        .post("/v1/nexus/nobody/kip", json!({"command": "DESCRIBE DOMAINS"}))
        .await
        .refused(404, "lifeform_not_found");
    test.operator
        .post(&format!("/v1/nexus/{id}/kip"), json!({"command": "DESCRIBE DOMAINS", "dryRun": true}))
        .await
        .refused(422, "invalid");
}
