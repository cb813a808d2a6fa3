//! One memory: a mind seen together with the commons, and written as one with it (MISSION "One memory").

use std::sync::Arc;

use nexus::{COMMONS, Nexus, NexusId, Request, SpillConfig};
use serde_json::{Value, json};
use store::faulty::{Fault, Faulty};
use store::{ManualClock, Memory, Origin, Principal, Store};

/// A nexus of several minds, and who writes in it.
struct World {
    nexus: Nexus,
}

impl World {
    async fn new() -> Self {
        Self::on(Store::in_memory(Arc::new(ManualClock::default())).await)
    }

    fn on(store: Store) -> Self {
        Self { nexus: Nexus::new(store) }
    }

    /// Runs a command as the lifeform itself in its own mind.
    async fn run(&self, who: &str, command: &str) -> Value {
        let origin = Origin::new(Principal::lifeform(who), Default::default());
        self.nexus.execute(&who.into(), Request::new(command), &origin).await.unwrap()
    }

    async fn ok(&self, who: &str, command: &str) -> Value {
        let answer = self.run(who, command).await;
        assert!(answer.get("error").is_none(), "{who}: {command}: {answer}");
        answer["result"].clone()
    }

    async fn refused(&self, who: &str, command: &str) -> String {
        let answer = self.run(who, command).await;
        answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{who}: {command}: {answer}")).to_owned()
    }

    /// Runs a command as the operator.
    async fn operator(&self, nexus: &str, command: &str) -> Value {
        let answer = self.nexus.execute(&nexus.into(), Request::new(command), &Origin::system("test")).await.unwrap();
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer["result"].clone()
    }

    async fn journal(&self, nexus: &str) -> usize {
        self.nexus.journal(&nexus.into(), 0, 256).await.unwrap().len()
    }
}

const TIDES: &str = r#"
UPSERT {
  CONCEPT ?chart { {type: "Resource", name: "charts/faro"} SET ATTRIBUTES { title: "Chart of Faro", body: "depths" } }
  CONCEPT ?k { {type: "Knowledge", name: "tides"}
    SET ATTRIBUTES { task: "entering the harbour", content: "Wait for the flood tide." }
    SET PROPOSITIONS { ("uses_resource", ?chart) ("belongs_to_domain", {type: "Domain", name: "Conversation"}) } }
  CONCEPT ?me { {type: "Person", name: "Ada"} SET PROPOSITIONS { ("belongs_to_domain", {type: "Domain", name: "Conversation"}) } }
}
WITH METADATA { source: "log" }"#;

const PUBLIC: &str =
    r#"UPSERT { CONCEPT { {type: "Knowledge", name: "tides"} } WITH METADATA { access_scopes: ["public"] } }"#;
const ALL: &str = r#"FIND(?k.name) WHERE { ?k {type: "Knowledge"} } ORDER BY ?k.name"#;

#[tokio::test]
async fn a_mind_sees_shared_records_of_the_commons_by_scope() {
    let world = World::new().await;
    world.ok("ada", TIDES).await;
    // The three types and the link between them stand there, the person and the domains at home.
    assert_eq!(world.operator(COMMONS, ALL).await, json!(["tides"]));
    assert_eq!(
        world
            .operator(COMMONS, r#"FIND(?r.name) WHERE { ({type: "Knowledge", name: "tides"}, "uses_resource", ?r) }"#)
            .await,
        json!(["charts/faro"])
    );
    assert_eq!(world.operator(COMMONS, r#"FIND(?p.name) WHERE { ?p {type: "Person", name: "Ada"} }"#).await, json!([]));
    let record = world.operator(COMMONS, r#"FIND(?k.metadata) WHERE { ?k {type: "Knowledge"} }"#).await;
    assert_eq!((&record[0]["owner"], &record[0]["access_scopes"]), (&json!("lifeform:ada"), &json!(["lifeform:ada"])));
    // In one mind both are one graph: a path goes through what is shared and what is its own.
    let across = r#"FIND(?k.id, ?d.name, ?p.name) WHERE { (?k, "belongs_to_domain", ?d) (?p, "belongs_to_domain", ?d) ?k {type: "Knowledge"} ?p {type: "Person"} }"#;
    let found = world.ok("ada", across).await;
    assert_eq!((&found[0][1], &found[0][2]), (&json!("Conversation"), &json!("Ada")));
    let id = found[0][0].as_str().unwrap();
    let by_id = |id: &str| format!(r#"FIND(?k.name) WHERE {{ ?k {{id: "{id}"}} }}"#);
    assert_eq!(world.ok("ada", &by_id(id)).await, json!(["tides"]));
    // The commons themselves call it the same, without saying whose it is.
    let at_home = id.strip_prefix("commons/").unwrap();
    assert_eq!(world.operator(COMMONS, &by_id(at_home)).await, json!(["tides"]));
    assert_eq!(world.ok("ada", &by_id(at_home)).await, json!([]));
    let found = world.ok("ada", r#"SEARCH CONCEPT "flood""#).await;
    assert_eq!(found[0]["name"], "tides");
    // Nobody else sees it, in any way, until it is shown to all.
    for who in ["bob", "cid"] {
        assert_eq!(world.ok(who, ALL).await, json!([]));
        assert_eq!(world.ok(who, r#"SEARCH CONCEPT "flood""#).await, json!([]));
        assert!(!world.ok(who, "DESCRIBE PRIMER").await.to_string().contains("tides"));
        assert_eq!(world.ok(who, r#"FIND(COUNT(?l)) WHERE { ?l (?a, "uses_resource", ?b) }"#).await, json!([0]));
    }
    world.ok("ada", PUBLIC).await;
    assert_eq!(world.ok("bob", ALL).await, json!(["tides"]));
    // The chart is ada's alone still, and so is the link to it.
    assert_eq!(world.ok("bob", r#"FIND(?r) WHERE { (?k, "uses_resource", ?r) }"#).await, json!([]));
    // A link of one's own to what is shared.
    world.ok("bob", r#"UPSERT { CONCEPT { {type: "Domain", name: "Sailing"} } CONCEPT { {type: "Knowledge", name: "knots"} SET ATTRIBUTES { task: "t", content: "c" } SET PROPOSITIONS { ("belongs_to_domain", {type: "Domain", name: "Sailing"}) } } }"#).await;
    assert_eq!(world.ok("bob", ALL).await, json!(["knots", "tides"]));
    assert_eq!(world.ok("ada", ALL).await, json!(["tides"]));
    // Types of the commons are known everywhere and listed once.
    let types = world.ok("cid", "DESCRIBE CONCEPT TYPES").await;
    let types: Vec<&str> = types.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(types.iter().filter(|name| **name == "Knowledge").count(), 1);
    assert_eq!(types.iter().filter(|name| **name == "Person").count(), 1);
    // It wakes as it stood.
    let before = world.ok("ada", across).await;
    for id in ["ada", "bob", COMMONS] {
        world.nexus.forget(&id.into());
    }
    assert_eq!(world.ok("ada", across).await, before);
    assert_eq!(world.ok("bob", ALL).await, json!(["knots", "tides"]));
}

#[tokio::test]
async fn only_the_owner_of_a_shared_record_can_change_it() {
    let world = World::new().await;
    world.ok("ada", TIDES).await;
    world.ok("ada", PUBLIC).await;
    let state = async || {
        let all = r#"FIND(?x) WHERE { ?x {type: "Knowledge"} }"#;
        (world.operator(COMMONS, all).await, world.journal(COMMONS).await, world.journal("bob").await)
    };
    world.ok("bob", "DESCRIBE DOMAINS").await;
    let before = state().await;
    let with_own = |block: &str| format!(r#"UPSERT {{ CONCEPT {{ {{type: "Person", name: "Bob's own"}} }} {block} }}"#);
    for (command, why) in [
        (
            with_own(r#"CONCEPT { {type: "Knowledge", name: "tides"} SET ATTRIBUTES { content: "mine now" } }"#),
            "belongs to somebody else",
        ),
        (
            r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: "tides"} }"#.into(),
            "belongs to somebody else",
        ),
        (
            r#"UPDATE ?k SET ATTRIBUTES { content: "x" } WHERE { ?k {type: "Knowledge"} }"#.into(),
            "belongs to somebody else",
        ),
        (with_own(r#"CONCEPT { {type: "Resource", name: "charts/faro"} }"#), "is taken in the commons"),
        (
            with_own(
                r#"CONCEPT { {type: "Knowledge", name: "new"} } WITH METADATA { access_scopes: ["lifeform:ada"] }"#,
            ),
            "cannot be shown to lifeform:ada",
        ),
        (
            with_own(r#"CONCEPT { {type: "Knowledge", name: "new"} } WITH METADATA { owner: "lifeform:ada" }"#),
            "given to somebody else",
        ),
    ] {
        let refused = world.refused("bob", &command).await;
        assert!(refused.contains(why), "{command}: {refused}");
        assert_eq!(state().await, before, "{command}");
    }
    assert_eq!(
        world.ok("bob", r#"FIND(COUNT(?p)) WHERE { ?p {type: "Person", name: "Bob's own"} }"#).await,
        json!([0])
    );
    // A dry run tells the same, and writes nothing either.
    let dry =
        Request { dry_run: true, ..Request::new(with_own(r#"CONCEPT { {type: "Resource", name: "charts/faro"} }"#)) };
    let bob = Origin::new(Principal::lifeform("bob"), Default::default());
    let told = world.nexus.execute(&"bob".into(), dry, &bob).await.unwrap();
    assert_eq!(told["error"]["code"], "KIP_3005");
    // The owner changes, merges and deletes what is his, with the links that are.
    world.ok("ada", r#"UPSERT { CONCEPT ?a { {type: "Knowledge", name: "ebb"} SET ATTRIBUTES { task: "t", content: "c" } SET PROPOSITIONS { ("uses_resource", {type: "Resource", name: "charts/faro"}) } }
        CONCEPT { {type: "Knowledge", name: "flood"} SET ATTRIBUTES { task: "t", content: "c" } } }"#).await;
    world.ok("ada", r#"MERGE CONCEPT ?a INTO ?b WHERE { ?a {type: "Knowledge", name: "ebb"} ?b {type: "Knowledge", name: "flood"} }"#).await;
    world.ok("ada", r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: "flood"} }"#).await;
    // A link made there is its maker's, and shown to nobody else.
    world.ok("bob", r#"UPSERT { PROPOSITION { ({type: "Knowledge", name: "tides"}, "distilled_from", {type: "Knowledge", name: "tides"}) SET ATTRIBUTES { note: "mine" } } }"#).await;
    let links = r#"FIND(?l.attributes.note) WHERE { ?l (?k, "distilled_from", ?o) }"#;
    assert_eq!((world.ok("bob", links).await, world.ok("ada", links).await), (json!(["mine"]), json!([])));
    world.ok("bob", r#"DELETE PROPOSITIONS ?l WHERE { ?l (?k, "distilled_from", ?o) }"#).await;
    // A word that stands only in what is hidden is as unknown as any other.
    world.ok("bob", r#"UPSERT { CONCEPT { {type: "Person", name: "deptths"} } }"#).await;
    assert_eq!(world.ok("bob", r#"SEARCH CONCEPT "depths""#).await[0]["name"], "deptths");
    // Neither is anything taken from under what others hold on it.
    world.ok("bob", r#"UPSERT { CONCEPT { {type: "Knowledge", name: "knots"} SET ATTRIBUTES { task: "t", content: "c" } SET PROPOSITIONS { ("distilled_from", {type: "Knowledge", name: "tides"}) } } }"#).await;
    let refused =
        world.refused("ada", r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: "tides"} }"#).await;
    assert!(refused.contains("still has links of others"), "{refused}");
    // The operator may, and then a link of one's own leads nowhere and is not there.
    assert_eq!(
        world.ok("ada", r#"FIND(?d.name) WHERE { ?k {type: "Knowledge"} (?k, "belongs_to_domain", ?d) }"#).await,
        json!(["Conversation"])
    );
    world.operator(COMMONS, r#"DELETE CONCEPT ?k DETACH WHERE { ?k {type: "Knowledge", name: "tides"} }"#).await;
    assert_eq!(world.ok("ada", r#"FIND(?l) WHERE { ?l (?k, "belongs_to_domain", {type: "Domain", name: "Conversation"}) FILTER(STARTS_WITH(?k.id, "commons")) }"#).await, json!([]));
    assert_eq!(
        world
            .ok(
                "ada",
                r#"FIND(?k.id, ?d.name) WHERE { (?k, "belongs_to_domain", ?d) FILTER(?d.name == "Conversation") }"#
            )
            .await
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn a_write_to_both_is_one_commit_with_an_entry_in_each_journal() {
    let world = World::new().await;
    world.ok("ada", "DESCRIBE DOMAINS").await;
    let (own, shared) = (world.journal("ada").await, world.journal(COMMONS).await);
    world.ok("ada", TIDES).await;
    assert_eq!((world.journal("ada").await, world.journal(COMMONS).await), (own + 1, shared + 1));
    // The same again changes nothing and writes no entry.
    world.ok("ada", TIDES).await;
    assert_eq!((world.journal("ada").await, world.journal(COMMONS).await), (own + 1, shared + 1));
    // Each part is taken back at its own door.
    let undo = async |nexus: &str, seq: usize| {
        let undone = world.nexus.undo(&NexusId::from(nexus), seq as u64, &Origin::system("test")).await.unwrap();
        assert!(undone.get("error").is_none(), "{undone}");
    };
    undo("ada", own + 1).await;
    assert_eq!(world.ok("ada", ALL).await, json!(["tides"]));
    undo(COMMONS, shared + 1).await;
    assert_eq!(world.ok("ada", ALL).await, json!([]));
    undo("ada", own + 2).await;
    assert_eq!(
        world.ok("ada", r#"FIND(?p.name) WHERE { ?p {type: "Person"} FILTER(?p.name == "Ada") }"#).await,
        json!(["Ada"])
    );
}

#[tokio::test]
async fn a_failed_write_to_mind_and_commons_leaves_both_unchanged() {
    let faults = [Fault::None, Fault::None, Fault::Before, Fault::Before, Fault::Before, Fault::Before];
    let store =
        Store::open(Arc::new(Faulty::new(Arc::new(Memory::default()), faults)), Arc::new(ManualClock::default()));
    let world = World::on(store.await.unwrap());
    world.ok("ada", "DESCRIBE DOMAINS").await;
    let ada = Origin::new(Principal::lifeform("ada"), Default::default());
    world.nexus.execute(&"ada".into(), Request::new(TIDES), &ada).await.unwrap_err();
    assert_eq!(world.ok("ada", ALL).await, json!([]));
    assert_eq!(world.ok("ada", r#"FIND(?p) WHERE { ?p {type: "Person", name: "Ada"} }"#).await, json!([]));
    // Both go on where they stood.
    world.ok("ada", TIDES).await;
    assert_eq!(world.ok("ada", ALL).await, json!(["tides"]));
    let before = world.operator(COMMONS, ALL).await;
    world.nexus.forget(&COMMONS.into());
    assert_eq!(world.operator(COMMONS, ALL).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writes_of_many_minds_to_the_commons_are_all_kept() {
    let folder = tempfile::tempdir().unwrap();
    for shelves in [None, Some(SpillConfig { unfiled: 16, ..SpillConfig::new(folder.path(), 0) })] {
        let mut nexus = Nexus::new(Store::in_memory(Arc::new(ManualClock::default())).await);
        if let Some(shelves) = shelves {
            nexus = nexus.with_shelves(shelves);
        }
        let tasks: Vec<_> = (0..8)
            .map(|who| {
                let world = World { nexus: nexus.clone() };
                tokio::spawn(async move {
                    let name = format!("lf{who}");
                    for n in 0..12 {
                        let both = format!(r#"UPSERT {{ CONCEPT ?p {{ {{type: "Person", name: "p{n}"}} }} CONCEPT {{ {{type: "Knowledge", name: "{name} {n}"}} SET ATTRIBUTES {{ task: "t", content: "c" }} }} }} WITH METADATA {{ access_scopes: ["public"] }}"#);
                        world.ok(&name, &both).await;
                        let own = format!(r#"UPSERT {{ CONCEPT {{ {{type: "Person", name: "q{n}"}} }} }}"#);
                        world.ok(&name, &own).await;
                        // What was just written is read, whoever else writes.
                        let mine = format!(r#"FIND(COUNT(?k)) WHERE {{ ?k {{type: "Knowledge"}} FILTER(STARTS_WITH(?k.name, "{name} ")) }}"#);
                        assert_eq!(world.ok(&name, &mine).await, json!([n + 1]));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let world = World { nexus };
        for id in (0..8).map(|who| format!("lf{who}")) {
            world.nexus.forget(&id.as_str().into());
            assert_eq!(world.ok(&id, r#"FIND(COUNT(?k)) WHERE { ?k {type: "Knowledge"} }"#).await, json!([96]));
            assert_eq!(
                world
                    .ok(&id, r#"FIND(COUNT(?p)) WHERE { ?p {type: "Person"} FILTER(REGEX(?p.name, "^[pq][0-9]+$")) }"#)
                    .await,
                json!([24])
            );
        }
    }
}
