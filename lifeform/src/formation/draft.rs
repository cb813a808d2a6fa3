//! The command that writes the claims of one statement.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use store::Hash;

use super::mention::Kind;
use super::resolving::{is_said_in, key_of, plain};
use super::writing::Statement;
use crate::memory::SELF;

/// The source of the concepts that formation makes.
pub(crate) const FORMATION: &str = "formation";

/// A concept in a command: one of the mind, or one that the command makes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Handle {
    /// The text by which the command names it.
    text: String,
    id: Option<String>,
    /// The login, for a person who has one.
    login: Option<String>,
}

impl Handle {
    /// Returns the handle of a concept of the mind.
    pub(super) fn known(concept: &Value) -> Self {
        let id = concept["id"].as_str().unwrap_or_default();
        let is_heard_of = concept["metadata"]["source"] == FORMATION || concept["type"] != "Person";
        let login = concept["name"].as_str().filter(|_| !is_heard_of).map(str::to_owned);
        Self { text: format!("{{id: {}}}", json!(id)), id: Some(id.to_owned()), login }
    }

    /// Returns the login, for a person who has one.
    pub(super) fn login(&self) -> Option<&str> {
        self.login.as_deref()
    }

    /// Returns the id, if the mind has the concept already.
    pub(super) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// A command that writes the claims of one statement.
pub(super) struct Draft {
    command: String,
    pub(super) parameters: Map<String, Value>,
    /// The concepts that the statement speaks of, each with its name if that was heard elsewhere in the talk.
    mentioned: Vec<(String, Option<String>)>,
    /// The seed of the names of new concepts: the same statement makes the same names.
    seed: String,
    scopes: BTreeSet<String>,
    /// The words of the statement, and of what else its audience heard in the talk, in plain form.
    said: String,
    heard: String,
}

impl Draft {
    pub(super) fn new(seed: &str, scopes: &BTreeSet<String>, (said, heard): (&str, &str)) -> Self {
        let command = "UPSERT {\n".to_owned();
        Self {
            command,
            parameters: Map::new(),
            mentioned: Vec::new(),
            seed: seed.to_owned(),
            scopes: scopes.clone(),
            said: plain(said),
            heard: plain(heard),
        }
    }

    /// Adds a parameter, and returns its placeholder.
    fn value(&mut self, value: Value) -> String {
        let name = format!("p{}", self.parameters.len());
        self.parameters.insert(name.clone(), value);
        format!("${name}")
    }

    pub(super) fn mention(&mut self, handle: Handle) -> Handle {
        self.mention_by(handle, None)
    }

    fn mention_by(&mut self, handle: Handle, name: Option<&str>) -> Handle {
        if !self.mentioned.iter().any(|(known, _)| *known == handle.text) {
            let heard = name.filter(|name| !is_said_in(name, &self.said) && is_said_in(name, &self.heard));
            self.mentioned.push((handle.text.clone(), heard.map(str::to_owned)));
        }
        handle
    }

    /// Adds a new concept.
    pub(super) fn new_concept(&mut self, kind: Kind, name: Option<&str>, sort: Option<&str>) -> Handle {
        let at = self.mentioned.len();
        let mark = &Hash::of(format!("{} {at}", self.seed).as_bytes()).hex()[..8];
        // Themes and places are everybody's; of the others, two may have one name. The name of a node tells no relation: more people
        // see the node than its links.
        let own = match (kind, name) {
            (Kind::Theme | Kind::Place, Some(name)) => name.to_owned(),
            (_, Some(name)) => format!("{name} {mark}"),
            (Kind::Thing, None) => format!("something {mark}"),
            (_, None) => format!("somebody {mark}"),
        };
        let mut attributes = json!({});
        match kind {
            Kind::Person => attributes = json!({"id": format!("heard:{mark}"), "person_class": "Human"}),
            Kind::Organization => attributes = json!({"id": format!("heard:{mark}"), "person_class": "Organization"}),
            _ => {}
        }
        if let Some(name) = name {
            (attributes["name"], attributes["key"]) = (name.into(), key_of(kind, name).into());
        }
        if let Some(sort) = sort {
            attributes["kind"] = sort.into();
        }
        let handle = format!("?e{at}");
        let (own, scopes) = (self.value(own.into()), self.value(json!(self.scopes)));
        let set = self.members(&attributes);
        let _ = writeln!(
            self.command,
            "CONCEPT {handle} {{ {{type: \"{}\", name: {own}}} SET ATTRIBUTES {{ {set} }} }} WITH METADATA {{ source: \"{FORMATION}\", status: \"active\", access_scopes: {scopes} }}",
            kind.type_name()
        );
        self.mention_by(Handle { text: handle, id: None, login: None }, name)
    }

    /// Names a concept that had no name, if all who see it hear the name now.
    pub(super) fn named(&mut self, concept: &Value, name: &str, key: &str) -> Handle {
        let seen_by = concept["metadata"]["access_scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if !seen_by.map(str::to_owned).all(|scope| self.scopes.contains(&scope)) {
            return self.mention(Handle::known(concept));
        }
        let handle = format!("?e{}", self.mentioned.len());
        let id = self.value(concept["id"].clone());
        let set = self.members(&json!({"name": name, "key": key}));
        let scopes = self.value(self.widened(concept));
        let _ = writeln!(
            self.command,
            "CONCEPT {handle} {{ {{id: {id}}} SET ATTRIBUTES {{ {set} }} }} WITH METADATA {{ access_scopes: {scopes} }}"
        );
        self.mention_by(Handle { text: handle, ..Handle::known(concept) }, Some(name))
    }

    /// Notes a concept of the mind. Those who hear of it may see it from now on, unless they would see a name that was not said.
    pub(super) fn seen(&mut self, concept: &Value) -> Handle {
        let scopes = self.widened(concept);
        // The word of a theme or a place is no name.
        let is_word = ["Theme", "Place"].iter().any(|kind| concept["type"] == *kind);
        let name = concept["attributes"]["name"].as_str();
        let is_said = is_word || name.is_none_or(|name| is_said_in(name, &self.said) || is_said_in(name, &self.heard));
        let name = name.filter(|_| !is_word);
        if scopes.is_null() || !is_said || scopes == concept["metadata"]["access_scopes"] {
            return self.mention_by(Handle::known(concept), name);
        }
        let handle = format!("?e{}", self.mentioned.len());
        let (id, scopes) = (self.value(concept["id"].clone()), self.value(scopes));
        let _ =
            writeln!(self.command, "CONCEPT {handle} {{ {{id: {id}}} }} WITH METADATA {{ access_scopes: {scopes} }}");
        self.mention_by(Handle { text: handle, ..Handle::known(concept) }, name)
    }

    /// Returns the scopes of an element with those of the statement; null if everybody sees it.
    fn widened(&self, element: &Value) -> Value {
        let Some(known) = element["metadata"]["access_scopes"].as_array() else { return Value::Null };
        let known = known.iter().filter_map(|scope| scope.as_str().map(str::to_owned));
        json!(known.chain(self.scopes.iter().cloned()).collect::<BTreeSet<String>>())
    }

    fn members(&mut self, of: &Value) -> String {
        let members = of.as_object().into_iter().flatten();
        let set: Vec<String> = members.map(|(key, value)| format!("{key}: {}", self.value(value.clone()))).collect();
        set.join(", ")
    }
}

/// The metadata of a claim that other statements may have made, too.
pub(super) struct LinkState {
    pub(super) scopes: BTreeSet<String>,
    /// The people who heard the same person say so.
    pub(super) said_to: BTreeSet<String>,
    pub(super) has_relation: bool,
    pub(super) reliability: f64,
    pub(super) confidence: f64,
}

impl Draft {
    /// Adds a claim, with the statement as its evidence.
    pub(super) fn claim(
        &mut self,
        statement: &Statement<'_>,
        (subject, predicate, object): (&Handle, &str, &Handle),
        relation: Option<&str>,
        state: LinkState,
        name: &str,
    ) {
        let dates = statement.fact.dates();
        let mut metadata = json!({
            "source": statement.fact.id(), "author": statement.author, "status": "active", "confidence": state.confidence,
            "reliability": state.reliability, "access_scopes": state.scopes, "heard_by": statement.audience,
            "superseded_by": null, "valid_until": null,
        });
        for (key, date) in [("valid_from", dates.from.or(dates.on)), ("valid_until", dates.until)] {
            if let Some(date) = date {
                metadata[key] = date.to_string().into();
            }
        }
        if let Some(at) = statement.fact.stated_at() {
            metadata["observed_at"] = json!(at);
        }
        let (set, metadata) = (relation.map(|relation| self.value(relation.into())), self.members(&metadata));
        let set = set.map_or_else(String::new, |relation| format!(" SET ATTRIBUTES {{ relation: {relation} }}"));
        let (subject, object) = (&subject.text, &object.text);
        let _ = writeln!(
            self.command,
            "PROPOSITION {name} {{ ({subject}, \"{predicate}\", {object}){set} }} WITH METADATA {{ {metadata} }}"
        );
        let teller = if statement.fact.found_by().is_some() { SELF } else { statement.author };
        let (fact, person) = (self.value(statement.fact.id().into()), self.value(teller.into()));
        let (heard, said_to) = (self.value(json!(statement.audience)), self.value(json!(state.said_to)));
        for (evidence, scopes) in [
            (format!("({{id: {fact}}}, \"states\", {name})"), &heard),
            (format!("({{type: \"Person\", name: {person}}}, \"stated\", {name})"), &said_to),
        ] {
            let _ = writeln!(
                self.command,
                "PROPOSITION {{ {evidence} }} WITH METADATA {{ source: {fact}, access_scopes: {scopes}, heard_by: {heard} }}"
            );
        }
    }

    /// Marks a claim as superseded by those of the statement.
    pub(super) fn outdate(&mut self, link: &str, by: &str, until: &str) {
        let (link, by, until) = (self.value(link.into()), self.value(by.into()), self.value(until.into()));
        let _ = writeln!(
            self.command,
            "PROPOSITION {{ (id: {link}) }} WITH METADATA {{ status: \"superseded\", superseded_by: {by}, valid_until: {until} }}"
        );
    }

    /// Returns the command.
    pub(super) fn whole(&mut self, fact: &str) -> String {
        let (fact, scopes) = (self.value(fact.into()), self.value(json!(self.scopes)));
        for (concept, name) in std::mem::take(&mut self.mentioned) {
            let named = name.map(|name| format!(" SET ATTRIBUTES {{ named: {} }}", self.value(name.into())));
            let named = named.unwrap_or_default();
            let _ = writeln!(
                self.command,
                "PROPOSITION {{ ({{id: {fact}}}, \"mentions\", {concept}){named} }} WITH METADATA {{ source: {fact}, access_scopes: {scopes}, heard_by: {scopes} }}"
            );
        }
        format!("{}}}", self.command)
    }
}
