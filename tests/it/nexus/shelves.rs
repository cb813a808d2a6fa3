//! Minds over their memory budget: served from a shelf, which is never the truth (K1, issue "resident graph").

use std::sync::Arc;

use nexus::kip::graph::Ids;
use nexus::{Nexus, NexusId, Request, SpillConfig};
use serde_json::{Value, json};
use store::{Cause, ManualClock, Memory, Origin, Principal, PrincipalKind, Role, Scope, Store, StoreError};

struct Mind {
    nexus: Nexus,
    id: NexusId,
}

impl Mind {
    async fn on(disk: &Arc<Memory>, shelves: Option<SpillConfig>) -> Self {
        // Whoever had it open before closes it in their own time.
        let store = loop {
            match Store::open(disk.clone(), Arc::new(ManualClock::default())).await {
                Err(StoreError::Locked(_)) => tests::again().await,
                opened => break opened.unwrap(),
            }
        };
        let nexus = Nexus::new(store);
        let nexus = if let Some(shelves) = shelves { nexus.with_shelves(shelves) } else { nexus };
        Self { nexus, id: "mind".into() }
    }

    async fn run(&self, command: &str) -> Value {
        self.nexus.execute(&self.id, Request::new(command), &Origin::system("test")).await.unwrap()
    }

    async fn ok(&self, command: &str) -> Value {
        let answer = self.run(command).await;
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer["result"].clone()
    }

    async fn load(&self, from: usize, to: usize) {
        for n in from..to {
            self.ok(&format!(
                r#"UPSERT {{ CONCEPT ?b {{ {{type: "Boat", name: "boat {n}"}} SET ATTRIBUTES {{ tons: {}, note: "a boat called {n} of the fleet" }}
                   SET PROPOSITIONS {{ ("moored_in", {{type: "Harbour", name: "h{}"}}) }} }} }}"#,
                n * 7 % 100,
                n % 5
            ))
            .await;
        }
    }

    /// Answers to questions of every sort.
    async fn answers(&self) -> Vec<(&'static str, Value)> {
        let mut answers = Vec::new();
        for question in [
            r#"FIND(?b) WHERE { ?b {type: "Boat", name: "boat 11"} }"#,
            r#"FIND(?b.name) WHERE { (?b, "moored_in", {type: "Harbour", name: "h2"}) } ORDER BY ?b.name"#,
            r#"FIND(?h.name, COUNT(?b)) WHERE { ?l (?b, "moored_in", ?h) } ORDER BY ?h.name"#,
            r#"FIND(?b.name, ?b.attributes.tons) WHERE { ?b {type: "Boat"} FILTER(?b.attributes.tons >= 40 && ?b.attributes.tons < 90) } ORDER BY ?b.attributes.tons DESC, ?b.name LIMIT 12"#,
            r#"FIND(?a.name) WHERE { ({type: "Boat", name: "boat 3"}, "moored_in", ?h) (?a, "moored_in", ?h) NOT { FILTER(?a.name == "boat 3") } } ORDER BY ?a.name"#,
            r#"FIND(?l) WHERE { ?l ({type: "Boat", name: "boat 7"}, ?p, ?o) }"#,
            "DESCRIBE CONCEPT TYPES",
            r#"SEARCH CONCEPT "flet" WITH TYPE "Boat" LIMIT 1000"#,
            r#"SEARCH CONCEPT "called 13" LIMIT 2"#,
        ] {
            let mut answer = self.ok(question).await;
            // How much a word tells counts what is outdated until that is filed.
            for hit in answer.as_array_mut().into_iter().flatten() {
                hit.pointer_mut("/metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("_score"));
            }
            answers.push((question, answer));
        }
        answers
    }

    async fn count(&self) -> Value {
        self.ok(r#"FIND(COUNT(?b)) WHERE { ?b {type: "Boat"} }"#).await
    }
}

const WORLD: &str = r#"
UPSERT {
  CONCEPT { {type: "$ConceptType", name: "Boat"} }
  CONCEPT { {type: "$ConceptType", name: "Harbour"} }
  CONCEPT { {type: "$PropositionType", name: "moored_in"} }
  CONCEPT { {type: "Harbour", name: "h0"} } CONCEPT { {type: "Harbour", name: "h1"} } CONCEPT { {type: "Harbour", name: "h2"} }
  CONCEPT { {type: "Harbour", name: "h3"} } CONCEPT { {type: "Harbour", name: "h4"} }
}"#;

/// Compares answers of two minds question by question; each has ids of its own.
fn same(found: Vec<(&str, Value)>, expected: &[(&str, Value)], when: &str) {
    for ((question, mut found), (_, expected)) in found.into_iter().zip(expected) {
        let mut expected = expected.clone();
        [&mut found, &mut expected].into_iter().for_each(|answer| renamed(answer, &mut Vec::new()));
        assert_eq!(found, expected, "{when}: {question}");
    }
}

/// Names each element by its place among the first mentions.
fn renamed(answer: &mut Value, known: &mut Vec<String>) {
    match answer {
        Value::String(id) if Ids::is_id(id) => {
            let at = known.iter().position(|known| known == id).unwrap_or_else(|| {
                known.push(id.clone());
                known.len() - 1
            });
            *id = format!("element {at}");
        }
        Value::Array(items) => items.iter_mut().for_each(|item| renamed(item, known)),
        Value::Object(members) => members.values_mut().for_each(|member| renamed(member, known)),
        _ => {}
    }
}

/// A budget that the first commands of a mind fit into, and its first hundred boats do not.
fn small(folder: &std::path::Path) -> SpillConfig {
    SpillConfig { unfiled: 40, ..SpillConfig::new(folder, 64 << 10) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_mind_on_a_shelf_answers_as_it_does_in_memory() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(Memory::default()));
    let shelf = folder.path().join("mind.redb");
    let (mind, plain) =
        (Mind::on(&disk, Some(small(folder.path()))).await, Mind::on(&Arc::new(Memory::default()), None).await);
    for one in [&mind, &plain] {
        one.ok(WORLD).await;
        one.load(0, 10).await;
    }
    assert!(!shelf.exists(), "a small mind stays in memory");
    let id = async || mind.ok(r#"FIND(?b.id) WHERE { ?b {type: "Boat", name: "boat 8"} }"#).await;
    let in_memory = id().await;
    for one in [&mind, &plain] {
        one.load(10, 120).await;
        one.ok(r#"DELETE CONCEPT ?b DETACH WHERE { ?b {type: "Boat", name: "boat 5"} }"#).await;
        one.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "boat 6"} SET ATTRIBUTES { tons: 41 } } }"#).await;
        one.ok(
            r#"UPDATE ?l SET METADATA { seen: true } WHERE { ?l ({type: "Boat", name: "boat 7"}, "moored_in", ?h) }"#,
        )
        .await;
    }
    assert!(shelf.exists(), "a large one does not");
    let expected = plain.answers().await;
    same(mind.answers().await, &expected, "on the shelf");
    assert_eq!(id().await, in_memory);
    mind.nexus.forget(&mind.id);
    same(mind.answers().await, &expected, "woken");
    assert_eq!(id().await, in_memory);
    // What was asked for often is indexed there too, and the answers are the same.
    for one in [&mind, &plain] {
        one.load(120, 700).await;
    }
    let expected = plain.answers().await;
    for _ in 0..3 {
        same(mind.answers().await, &expected, "grown");
    }
    let explained = mind.ok(r#"EXPLAIN FIND(?b) WHERE { ?b {type: "Boat"} FILTER(?b.attributes.tons == 41) }"#).await;
    assert!(explained.to_string().contains("the index of Boat by tons"), "{explained}");
}

/// A fresh process knows only the names its shelf tells it; this one knows them all, so they are looked for there.
/// What people in some teams are told of boats.
async fn told(mind: &Mind) -> Vec<(&'static str, Value)> {
    let mut told = Vec::new();
    for teams in [&[][..], &["team:0"], &["team:1", "team:2"]] {
        let mut ada = Principal::new("user:ada", PrincipalKind::User, Role::Participant);
        ada.scopes.extend(teams.iter().map(|team| Scope((*team).into())));
        let ada = Origin::new(ada, Cause::default());
        for question in [
            r#"FIND(COUNT(?b)) WHERE { ?b {type: "Boat"} }"#,
            r#"FIND(COUNT(?l)) WHERE { ?l (?b, "moored_in", ?h) }"#,
            r#"FIND(?b.name) WHERE { ?b {type: "Boat"} FILTER(?b.attributes.tons > 90) } ORDER BY ?b.name"#,
            "DESCRIBE CONCEPT TYPES",
            r#"SEARCH CONCEPT "fleet" LIMIT 1000"#,
        ] {
            let answer = mind.nexus.execute(&mind.id, Request::new(question), &ada).await.unwrap();
            let mut answer = answer["result"].clone();
            for hit in answer.as_array_mut().into_iter().flatten() {
                hit.pointer_mut("/metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("_score"));
            }
            told.push((question, answer));
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sees_what_holds_on_a_shelf_and_when_it_is_opened_again() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(Memory::default()));
    let (mind, plain) =
        (Mind::on(&disk, Some(small(folder.path()))).await, Mind::on(&Arc::new(Memory::default()), None).await);
    for one in [&mind, &plain] {
        one.ok(WORLD).await;
        one.load(0, 130).await;
        for n in 0..100 {
            let team = format!(r#"UPDATE ?b SET METADATA {{ access_scopes: ["team:{}"] }}"#, n % 3);
            one.ok(&format!(r#"{team} WHERE {{ ?b {{type: "Boat", name: "boat {n}"}} }}"#)).await;
        }
    }
    let expected = told(&plain).await;
    assert_eq!([&expected[0].1, &expected[5].1, &expected[10].1], [&json!([30]), &json!([64]), &json!([96])]);
    same(told(&mind).await, &expected, "on a shelf");
    // Some are everybody's again, one is another team's, and some go.
    for one in [&mind, &plain] {
        for n in (0..100).step_by(7) {
            let boat = format!(r#"WHERE {{ ?b {{type: "Boat", name: "boat {n}"}} }}"#);
            one.ok(&match n % 2 {
                0 => format!(r#"DELETE METADATA {{"access_scopes"}} FROM ?b {boat}"#),
                _ => format!("DELETE CONCEPT ?b DETACH {boat}"),
            })
            .await;
        }
        one.ok(r#"UPDATE ?b SET METADATA { access_scopes: ["team:0"] } WHERE { ?b {type: "Boat", name: "boat 1"} }"#)
            .await;
    }
    let expected = told(&plain).await;
    same(told(&mind).await, &expected, "after changes");
    drop(mind);
    wait_closed(&folder.path().join("mind.redb")).await;
    let again = Mind::on(&disk, Some(small(folder.path()))).await;
    same(told(&again).await, &expected, "opened again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shelf_tells_every_name_that_was_ever_given() {
    let folder = tempfile::tempdir().unwrap();
    {
        let mind = Mind::on(&Arc::new(Memory::default()), Some(small(folder.path()))).await;
        mind.ok(WORLD).await;
        mind.load(0, 100).await;
        mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "odd"} SET ATTRIBUTES { never_before: 1 } } } WITH METADATA { nor_this: 2 }"#).await;
        // Enough to have it filed.
        mind.load(100, 130).await;
    }
    let shelf = folder.path().join("mind.redb");
    wait_closed(&shelf).await;
    let file = redb::Database::open(&shelf).unwrap();
    let table: redb::TableDefinition<'_, &str, ()> = redb::TableDefinition::new("names");
    let table = redb::ReadableDatabase::begin_read(&file).unwrap().open_table(table).unwrap();
    for name in ["tons", "note", "never_before", "nor_this", "description"] {
        assert!(redb::ReadableTable::get(&table, name).unwrap().is_some(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mind_whose_shelf_cannot_be_used_wakes_in_memory() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(Memory::default()));
    let expected = {
        let mind = Mind::on(&disk, Some(small(folder.path()))).await;
        mind.ok(WORLD).await;
        mind.load(0, 100).await;
        mind.answers().await
    };
    let blocked = folder.path().join("blocked");
    std::fs::write(&blocked, "no folder").unwrap();
    let mind = Mind::on(&disk, Some(small(&blocked))).await;
    same(mind.answers().await, &expected, "in memory");
    mind.load(100, 101).await;
    assert_eq!(mind.count().await, json!([101]));
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_dry_runs_and_looks_back_work_on_a_shelf() {
    let folder = tempfile::tempdir().unwrap();
    let mind = Mind::on(&Arc::new(Memory::default()), Some(small(folder.path()))).await;
    mind.ok(WORLD).await;
    mind.load(0, 100).await;
    let origin = Origin::system("test");
    let seq = mind.nexus.snapshot(&mind.id).await.unwrap().seq;
    mind.ok(r#"DELETE CONCEPT ?b DETACH WHERE { ?b {type: "Boat"} FILTER(?b.attributes.tons > 50) }"#).await;
    let after = mind.count().await;
    assert_eq!(
        mind.ok(&format!(r#"FIND(COUNT(?b)) WHERE {{ ?b {{type: "Boat"}} }} AS OF SEQ {seq}"#)).await,
        json!([100])
    );
    let dry = Request { dry_run: true, ..Request::new(r#"DELETE CONCEPT ?b DETACH WHERE { ?b {type: "Boat"} }"#) };
    assert!(mind.nexus.execute(&mind.id, dry, &origin).await.unwrap().get("error").is_none());
    assert_eq!(mind.count().await, after);
    let undone = mind.nexus.undo(&mind.id, seq + 1, &origin).await.unwrap();
    assert!(undone.get("error").is_none(), "{undone}");
    assert_eq!(mind.count().await, json!([100]));
    let broken =
        mind.run(r#"UPSERT { CONCEPT { {type: "Boat", name: "x"} } CONCEPT { {type: "Nothing", name: "y"} } }"#).await;
    assert_eq!(broken["error"]["kind"], "schema");
    assert_eq!(mind.count().await, json!([100]), "a refusal leaves nothing");
}

/// What becomes of a shelf between two lives of a daemon, each over the same store.
#[tokio::test(flavor = "multi_thread")]
async fn the_nexus_rebuilds_a_stale_torn_lost_or_foreign_shelf() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), Arc::new(Memory::default()));
    let shelf = folder.path().join("mind.redb");
    let (old, other) = (folder.path().join("old"), folder.path().join("other"));
    {
        let mind = Mind::on(&disk, Some(small(folder.path()))).await;
        mind.ok(WORLD).await;
        mind.load(0, 100).await;
    }
    wait_closed(&shelf).await;
    std::fs::copy(&shelf, &old).unwrap();
    let expected = {
        let mind = Mind::on(&disk, Some(small(folder.path()))).await;
        mind.load(100, 130).await;
        mind.ok(r#"DELETE CONCEPT ?b DETACH WHERE { ?b {type: "Boat", name: "boat 5"} }"#).await;
        mind.ok(r#"UPSERT { CONCEPT { {type: "Boat", name: "boat 6"} SET ATTRIBUTES { tons: 41 } } }"#).await;
        mind.answers().await
    };
    // The shelf of another mind, further on than this one.
    {
        let elsewhere = tempfile::tempdir().unwrap();
        let mind = Mind::on(&Arc::new(Memory::default()), Some(small(elsewhere.path()))).await;
        mind.ok(WORLD).await;
        mind.load(500, 620).await;
        let theirs = elsewhere.path().join("mind.redb");
        drop(mind);
        wait_closed(&theirs).await;
        std::fs::copy(theirs, &other).unwrap();
    }
    type Harm<'h> = (&'h str, Box<dyn Fn() + 'h>);
    let harms: [Harm<'_>; 6] = [
        ("behind", Box::new(|| assert!(std::fs::copy(&old, &shelf).is_ok()))),
        ("of another history", Box::new(|| assert!(std::fs::copy(&other, &shelf).is_ok()))),
        ("lost", Box::new(|| std::fs::remove_file(&shelf).unwrap())),
        ("torn", Box::new(|| std::fs::write(&shelf, [7; 100_000]).unwrap())),
        (
            "changed in one value",
            Box::new(|| {
                let mut bytes = std::fs::read(&shelf).unwrap();
                let wanted = b"a boat called 11 of the fleet";
                let found = bytes.windows(wanted.len()).enumerate().filter(|(_, found)| found == wanted);
                let at: Vec<usize> = found.map(|(at, _)| at).collect();
                assert!(!at.is_empty(), "the value lies on the shelf");
                at.into_iter().for_each(|at| bytes[at] = b'A');
                std::fs::write(&shelf, bytes).unwrap();
            }),
        ),
        (
            "rotten inside",
            Box::new(|| {
                let mut bytes = std::fs::read(&shelf).unwrap();
                let from = bytes.len() / 8;
                bytes[from..].chunks_mut(512).step_by(3).for_each(|sector| sector.fill(7));
                std::fs::write(&shelf, bytes).unwrap();
            }),
        ),
    ];
    for (what, harm) in harms {
        wait_closed(&shelf).await;
        harm();
        let mind = Mind::on(&disk, Some(small(folder.path()))).await;
        // Rot may show only when it is read; then that read fails, and the next one finds a new shelf.
        let first = mind.nexus.execute(&mind.id, Request::new("DESCRIBE PRIMER"), &Origin::system("test")).await;
        let shows_late = ["rotten inside", "changed in one value"].contains(&what);
        assert!(first.is_ok() || shows_late, "{what}: {first:?}");
        let read = Request::new(r#"FIND(?b) WHERE { ?b {type: "Boat"} }"#);
        let second = mind.nexus.execute(&mind.id, read, &Origin::system("test")).await;
        assert!(second.is_ok() || shows_late, "{what}: {second:?}");
        same(mind.answers().await, &expected, what);
        assert_eq!(mind.count().await, json!([129]), "{what}");
    }
}

/// The writer of a mind that nobody holds any more ends in its own time; then its file can be opened.
async fn wait_closed(shelf: &std::path::Path) {
    assert!(shelf.exists(), "the mind is on no shelf");
    while redb::Database::open(shelf).is_err() {
        tests::again().await;
    }
}
