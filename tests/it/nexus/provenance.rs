//! The provenance of facts and records: only the daemon writes it, and the sources of a lifeform's own command are
//! unknown.

use nexus::kip::Call;
use nexus::{COMMONS, Nexus, NexusId, PROVENANCE_KEY, Provenance, WriteAuthority};
use serde_json::{Value, json};
use store::{Cause, Memory, Origin, Principal, PrincipalKind, Role, Store};

struct Scene {
    nexus: Nexus,
    iris: Origin,
    ada: Origin,
    operator: Origin,
}

/// A provenance that a command says itself.
const CLAIM: &str = r#"{ provenance: {sources: []} }"#;

impl Scene {
    async fn new() -> Self {
        let store =
            Store::open(std::sync::Arc::new(Memory::default()), std::sync::Arc::new(store::ManualClock::default()));
        let user = |id, role| Origin::new(Principal::new(id, PrincipalKind::User, role), Cause::default());
        Self {
            nexus: Nexus::new(store.await.unwrap()),
            iris: Origin::new(Principal::lifeform("lf_iris"), Cause::default()),
            ada: user("user:ada", Role::Participant),
            operator: user("user:operator", Role::Operator),
        }
    }

    async fn write(&self, nexus: &str, command: &str, by: &Origin, right: WriteAuthority) -> Value {
        let call = Call { command: command.to_owned(), parameters: Default::default() };
        self.nexus.write_with(&NexusId::from(nexus), call, by, right, Vec::new()).await.unwrap()
    }

    /// Runs a command with the caller's own rights, and returns the code of the refusal or null.
    async fn own(&self, nexus: &str, command: &str, by: &Origin) -> Value {
        self.write(nexus, command, by, WriteAuthority::Own).await["error"]["code"].clone()
    }

    async fn provenance_of(&self, nexus: &str, kind: &str) -> Option<Provenance> {
        let query = format!(r#"FIND(?x.metadata.{PROVENANCE_KEY}) WHERE {{ ?x {{type: "{kind}", name: "x"}} }}"#);
        let request = nexus::Request::new(query);
        let found = self.nexus.execute(&NexusId::from(nexus), request, &self.operator).await.unwrap();
        Provenance::read(&found["result"][0])
    }
}

fn upsert(kind: &str, attributes: &str, metadata: &str) -> String {
    format!(
        r#"UPSERT {{ CONCEPT {{ {{type: "{kind}", name: "x"}} SET ATTRIBUTES {attributes} }} }} WITH METADATA {metadata}"#
    )
}

/// The two places: a fact in a mind, and a record in the commons.
const PLACES: [(&str, &str, &str); 2] = [
    ("lf_iris", "Fact", r#"{ statement: "The shed is green." }"#),
    (COMMONS, "Knowledge", r#"{ task: "sheds", content: "The shed is green.", types: ["definition"] }"#),
];

#[tokio::test]
async fn what_a_lifeforms_own_command_writes_is_of_unknown_origin() {
    for (nexus, kind, attributes) in PLACES {
        let scene = Scene::new().await;
        assert_eq!(scene.own(nexus, &upsert(kind, attributes, r#"{ source: "m1" }"#), &scene.iris).await, Value::Null);
        assert_eq!(scene.provenance_of(nexus, kind).await, Some(Provenance::unknown()), "{kind}");
    }
}

#[tokio::test]
async fn no_command_says_whose_words_something_bears() {
    for (nexus, kind, attributes) in PLACES {
        let scene = Scene::new().await;
        let claims = upsert(kind, attributes, CLAIM);
        assert_eq!(scene.own(nexus, &claims, &scene.iris).await, "KIP_4003", "{kind}");
        assert_eq!(scene.provenance_of(nexus, kind).await, None);
        // Nor afterwards, nor by taking it away.
        assert_eq!(scene.own(nexus, &upsert(kind, attributes, "{ source: \"m1\" }"), &scene.iris).await, Value::Null);
        for claim in [CLAIM, "{ provenance: null }"] {
            let update = format!(r#"UPDATE ?x SET METADATA {claim} WHERE {{ ?x {{type: "{kind}", name: "x"}} }}"#);
            assert_eq!(scene.own(nexus, &update, &scene.iris).await, "KIP_4003", "{kind} {claim}");
        }
        assert_eq!(scene.provenance_of(nexus, kind).await, Some(Provenance::unknown()));
    }
    let scene = Scene::new().await;
    let (_, kind, attributes) = PLACES[1];
    assert_eq!(scene.own(COMMONS, &upsert(kind, attributes, CLAIM), &scene.ada).await, "KIP_4003");
    // An operator imports what was exported.
    assert_eq!(scene.own(COMMONS, &upsert(kind, attributes, CLAIM), &scene.operator).await, Value::Null);
    assert_eq!(scene.provenance_of(COMMONS, kind).await, Some(Provenance::default()));
}

#[tokio::test]
async fn a_command_that_changes_words_adds_outside_to_them() {
    for (nexus, kind, attributes) in PLACES {
        let scene = Scene::new().await;
        let of_ada = Provenance::of_conversation(["user:ada"]);
        let said = upsert(kind, attributes, &format!("{{ provenance: {} }}", of_ada.to_json()));
        let done = scene.write(nexus, &said, &scene.iris, WriteAuthority::Attest).await;
        assert!(done.get("error").is_none(), "{done}");
        // What is no word leaves it as it is.
        let update = |set: &str| format!(r#"UPDATE ?x SET {set} WHERE {{ ?x {{type: "{kind}", name: "x"}} }}"#);
        assert_eq!(scene.own(nexus, &update("METADATA { status: \"active\" }"), &scene.iris).await, Value::Null);
        assert_eq!(scene.provenance_of(nexus, kind).await, Some(of_ada.clone()));
        for words in [
            r#"ATTRIBUTES { content: "It is red.", statement: "It is red." }"#,
            "METADATA { author: \"user:operator\" }",
        ] {
            assert_eq!(scene.own(nexus, &update(words), &scene.iris).await, Value::Null, "{words}");
            let now = scene.provenance_of(nexus, kind).await.unwrap();
            assert_eq!(json!(now.sources), json!(["outside", "user:ada"]), "{kind} {words}");
            assert_eq!(now.audience, Provenance::unknown().audience);
        }
    }
}

#[tokio::test]
async fn an_owner_that_a_command_names_makes_no_fact_a_persons() {
    let (nexus, kind, attributes) = PLACES[0];
    for owner in ["user:operator", ""] {
        let scene = Scene::new().await;
        let claims = format!(r#"{{ owner: "{owner}", author: "user:operator" }}"#);
        assert_eq!(scene.own(nexus, &upsert(kind, attributes, &claims), &scene.iris).await, Value::Null);
        assert_eq!(scene.provenance_of(nexus, kind).await, Some(Provenance::unknown()), "{owner}");
    }
    // Nor in two steps.
    let scene = Scene::new().await;
    let owned = upsert(kind, attributes, r#"{ owner: "user:operator" }"#);
    assert_eq!(scene.own(nexus, &owned, &scene.operator).await, Value::Null);
    let update = r#"UPDATE ?x SET ATTRIBUTES { statement: "It is red." } WHERE { ?x {type: "Fact", name: "x"} }"#;
    assert_eq!(scene.own(nexus, update, &scene.iris).await, Value::Null);
    assert_eq!(scene.provenance_of(nexus, kind).await, Some(Provenance::unknown()));
}

#[tokio::test]
async fn a_merge_adds_outside_to_what_it_fills() {
    let scene = Scene::new().await;
    let (nexus, kind, attributes) = PLACES[0];
    let other = upsert(kind, r#"{ subject: "sheds" }"#, r#"{ source: "hand" }"#).replace(r#""x""#, r#""y""#);
    let by_hand = upsert(kind, attributes, r#"{ source: "hand" }"#);
    assert_eq!(scene.own(nexus, &by_hand, &scene.operator).await, Value::Null);
    assert_eq!(scene.own(nexus, &other, &scene.operator).await, Value::Null);
    let merge = r#"MERGE CONCEPT ?y INTO ?x WHERE { ?y {type: "Fact", name: "y"} ?x {type: "Fact", name: "x"} }"#;
    assert_eq!(scene.own(nexus, merge, &scene.iris).await, Value::Null);
    assert_eq!(scene.provenance_of(nexus, kind).await, Some(Provenance::unknown()));
}

#[tokio::test]
async fn an_operators_fact_stays_the_operators() {
    let scene = Scene::new().await;
    let (nexus, kind, attributes) = PLACES[0];
    assert_eq!(scene.own(nexus, &upsert(kind, attributes, "{ source: \"hand\" }"), &scene.operator).await, Value::Null);
    assert_eq!(scene.provenance_of(nexus, kind).await, None);
}
