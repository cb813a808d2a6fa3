//! The resolution of mentions: which concept of a mind a statement speaks of. A person can mean only whom he has spoken or
//! heard of, so a name that two people use apart from each other is two concepts.

use std::collections::BTreeSet;

use nexus::NexusError;
use nexus::kip::graph::text::terms;
use serde_json::{Value, json};
use store::Origin;
use unicode_normalization::UnicodeNormalization;

use super::draft::{Draft, Handle};
use super::mention::{Claim, Kind, Mention};
use super::vocabulary::{Relation, SAME_AS};
use crate::memory::{Memory, StoredFact, rows};

/// The maximum length of a name, in characters.
const NAME_CHARS_MAX: usize = 80;

/// Finds the concepts of a type by their plain name.
const BY_KEY: &str = r#"FIND(?e) WHERE { ?e {type: $kind} FILTER(?e.attributes.key == $key) } LIMIT 100"#;
/// Finds the active facts that mention a concept.
const MENTIONED_IN: &str =
    r#"FIND(?f) WHERE { (?f, "mentions", {id: $concept}) FILTER(?f.metadata.status == "active") } LIMIT 1000"#;
/// Finds what a concept is linked to, with the facts that say so.
const LINKED: &str = r#"
FIND(?e, ?l, ?f) WHERE { ?l ({id: $of}, $predicate, ?e) (?f, "states", ?l) FILTER(?l.metadata.status == "active" && ?f.metadata.status == "active") } LIMIT 1000"#;
/// Finds any link from one concept to another.
const ANY_LINK: &str = r#"FIND(?l) WHERE { ?l ({id: $of}, ?predicate, {id: $concept}) } LIMIT 1"#;
/// Finds the persons of whom a person spoke in a topic, with the facts, the latest first.
const SPOKEN_OF: &str = r#"
FIND(?e, ?f) WHERE { ?e {type: "Person"} (?f, "mentions", ?e) FILTER(?f.metadata.author == $person && ?f.attributes.topic == $topic && ?f.attributes.canvas == $canvas && ?f.attributes.stated_at < $before && ?e.attributes.person_class == "Human" && ?f.metadata.status == "active") } ORDER BY ?f.attributes.stated_at DESC LIMIT 20"#;
/// Finds a person by the id of its login.
const LOGIN: &str = r#"FIND(?p) WHERE { ?p {type: "Person", name: $person} }"#;

/// The speaker of a statement, and those who heard it.
pub(super) struct Teller<'a> {
    pub(super) person: &'a str,
    pub(super) canvas: &'a str,
    pub(super) topic: &'a str,
    /// The time of the statement.
    pub(super) at: Option<store::Timestamp>,
    pub(super) audience: &'a BTreeSet<String>,
    /// `true` for the lifeform, of what it found out: it means what all of those know for whom it found it.
    pub(super) is_finder: bool,
}

impl Teller<'_> {
    /// Returns `true` if the speaker stated a fact or heard it.
    fn knows(&self, fact: &Value) -> bool {
        let fact = StoredFact::of(fact);
        let Some(heard) = fact.audience(fact.author()) else { return false };
        let mut others = self.audience.iter().filter(|who| *who != self.person).peekable();
        match self.is_finder && others.peek().is_some() {
            true => others.all(|who| heard.contains(who)),
            false => heard.contains(self.person),
        }
    }
}

/// Returns a name in the form in which names are compared: normalized, in lower case, without invisible characters.
pub(crate) fn plain(name: &str) -> String {
    let visible = name.nfkc().filter(|c| !store::is_invisible(*c) && !c.is_control());
    let text: String = visible.flat_map(char::to_lowercase).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.strip_prefix("the ").unwrap_or(&text).to_owned()
}

/// Returns the form in which the names of a kind of concept are compared: themes by their stems, so that "dogs" is "dog".
pub(crate) fn key_of(kind: Kind, name: &str) -> String {
    let plain = plain(name);
    match kind {
        Kind::Theme if plain.is_ascii() => terms(&plain).join(" "),
        _ => plain,
    }
}

/// Returns the words of a text. Letters of a script without spaces part the words of others: "住んでるkenjiの" holds "kenji".
pub(super) fn words(text: &str) -> Vec<String> {
    let is_spaced = |c: char| c.is_alphanumeric() && !matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}');
    text.split(|c: char| !is_spaced(c)).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Returns `true` if a text says a name: its words, one after the other. In a script without spaces, it holds the name.
pub(crate) fn is_said_in(name: &str, text: &str) -> bool {
    let (name, text) = (plain(name), plain(text));
    match name.is_ascii() {
        true => {
            let (name, said) = (words(&name), words(&text));
            !name.is_empty() && said.windows(name.len()).any(|some| some == name)
        }
        false => text.contains(&name),
    }
}

/// Returns `true` if a text can be the name of a concept.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('$')
        && name.chars().count() <= NAME_CHARS_MAX
        && !name.contains(['{', '}', '<', '>'])
}

/// The resolution of the mentions of one statement.
pub(super) struct Resolving<'a> {
    pub(super) memory: &'a Memory,
    pub(super) teller: Teller<'a>,
    pub(super) cause: &'a Origin,
    /// The concepts of the statement so far.
    pub(super) known: Vec<(Mention, Handle)>,
}

impl Resolving<'_> {
    /// Returns the concept of a mention; a new one is added to the draft. `None` if the mention may be one of several.
    pub(super) async fn concept(&mut self, mention: &Mention, draft: &mut Draft) -> Result<Option<Handle>, NexusError> {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| known == mention) {
            return Ok(Some(known.clone()));
        }
        let found = match mention {
            Mention::Speaker => self.login(self.teller.person).await?,
            Mention::Last => self.last(draft).await?,
            Mention::Named(kind, name) => self.named(*kind, name, draft).await?,
            Mention::Related { of, relation, name } => {
                let Some(of) = Box::pin(self.concept(of, draft)).await? else { return Ok(None) };
                let is_such = |_: &Value, link: &Value| is_relation(relation, link);
                let is_one = relation.is_single();
                self.linked((&of, relation.predicate, is_one), (Kind::Person, None, name.as_deref()), is_such, draft)
                    .await?
            }
            Mention::Owned { of, kind, name } => {
                let Some(of) = Box::pin(self.concept(of, draft)).await? else { return Ok(None) };
                let sort = key_of(Kind::Theme, kind);
                let is_such = |thing: &Value, _: &Value| {
                    thing["attributes"]["kind"].as_str().is_some_and(|of| key_of(Kind::Theme, of) == sort)
                };
                self.linked((&of, "owns", true), (Kind::Thing, Some(kind), name.as_deref()), is_such, draft).await?
            }
        };
        if let Some(found) = &found {
            self.known.push((mention.clone(), found.clone()));
        }
        Ok(found)
    }

    /// Returns the subject of a claim. What is in a place is a company, if the speaker knows one of that name, and otherwise a place;
    /// another name is the name and not whom it names.
    pub(super) async fn subject(&mut self, claim: &Claim, draft: &mut Draft) -> Result<Option<Handle>, NexusError> {
        // "Rike is short for Henrike" speaks of the name.
        if let (Mention::Named(kind, name), SAME_AS) = (&claim.subject, &*claim.predicate) {
            return self.own_name((*kind, name), draft).await;
        }
        if let Mention::Named(Kind::Place, name) = &claim.subject {
            let key = key_of(Kind::Organization, name);
            let found = self.find(BY_KEY, json!({"kind": Kind::Organization.type_name(), "key": key})).await?;
            if let Some(known) = self.newest_known(&found).await? {
                return Ok(Some(draft.seen(known)));
            }
        }
        self.concept(&claim.subject, draft).await
    }

    async fn find(&self, command: &str, parameters: Value) -> Result<Vec<Value>, NexusError> {
        Ok(rows(&self.memory.ask(command, parameters, self.cause).await?).to_vec())
    }

    async fn login(&self, person: &str) -> Result<Option<Handle>, NexusError> {
        let found = self.find(LOGIN, json!({"person": person})).await?;
        Ok(found.first().map(Handle::known))
    }

    /// Returns the person of whom the speaker spoke last in the topic, if that statement spoke of one person.
    async fn last(&self, draft: &mut Draft) -> Result<Option<Handle>, NexusError> {
        let Teller { person, canvas, topic, at, .. } = self.teller;
        let place = json!({"person": person, "canvas": canvas, "topic": topic, "before": at});
        let spoken = self.find(SPOKEN_OF, place).await?;
        let Some(newest) = spoken.first().map(|row| row[1]["id"].clone()) else { return Ok(None) };
        let others: Vec<&Value> =
            spoken.iter().filter(|row| row[1]["id"] == newest && row[0]["name"] != person).collect();
        Ok(match others[..] {
            [one] => Some(draft.mention(Handle::known(&one[0]))),
            _ => None,
        })
    }

    /// Returns the concept with a name. A name that the speaker said to be another one of a person is that person.
    async fn named(&self, kind: Kind, name: &str, draft: &mut Draft) -> Result<Option<Handle>, NexusError> {
        let key = key_of(kind, name);
        if !is_name(name) || key.is_empty() {
            return Ok(None);
        }
        // A page that names "Ben" does not speak of the user.
        if kind == Kind::Person
            && !self.teller.is_finder
            && let Some(login) =
                self.teller.audience.iter().find(|who| who.split_once(':').is_some_and(|(_, id)| plain(id) == key))
        {
            return self.login(login).await;
        }
        // "My sister Henrike … and Henrike …" is one person.
        let is_she = |known: &Mention| match known {
            Mention::Related { name: Some(name), .. } => kind == Kind::Person && key_of(kind, name) == key,
            Mention::Owned { name: Some(name), .. } => kind == Kind::Thing && key_of(kind, name) == key,
            _ => false,
        };
        if let Some((_, handle)) = self.known.iter().find(|(known, _)| is_she(known)) {
            return Ok(Some(handle.clone()));
        }
        let found = self.find(BY_KEY, json!({"kind": kind.type_name(), "key": key})).await?;
        let known = match kind {
            // Words and places are everybody's.
            Kind::Theme | Kind::Place => found.first(),
            _ => self.newest_known(&found).await?,
        };
        let Some(concept) = known else { return Ok(Some(draft.new_concept(kind, Some(name), None))) };
        let meant = self.named_by(concept).await?;
        Ok(Some(draft.seen(meant.as_ref().unwrap_or(concept))))
    }

    /// Returns the one of whom the speaker said that a concept is another name, to all who hear this statement; `None` if they are
    /// several.
    async fn named_by(&self, concept: &Value) -> Result<Option<Value>, NexusError> {
        let found = self.find(LINKED, json!({"of": concept["id"], "predicate": SAME_AS})).await?;
        let is_heard = |row: &&Value| {
            let fact = StoredFact::of(&row[2]);
            fact.author() == Some(self.teller.person)
                && fact.audience(fact.author()).is_some_and(|heard| self.teller.audience.is_subset(&heard))
        };
        let ones: Vec<&Value> = found.iter().filter(is_heard).map(|row| &row[0]).collect();
        Ok(ones.first().filter(|one| ones.iter().all(|other| other["id"] == one["id"])).map(|one| (*one).clone()))
    }

    /// Returns the concept of a name that the speaker gives a person: one that nobody else has spoken of, or a new one.
    async fn own_name(&self, (kind, name): (Kind, &str), draft: &mut Draft) -> Result<Option<Handle>, NexusError> {
        let key = key_of(kind, name);
        if !is_name(name) || key.is_empty() {
            return Ok(None);
        }
        for concept in self.find(BY_KEY, json!({"kind": kind.type_name(), "key": key})).await? {
            let facts = self.find(MENTIONED_IN, json!({"concept": concept["id"]})).await?;
            let is_own = |fact: &Value| StoredFact::of(fact).author() == Some(self.teller.person);
            if !facts.is_empty() && facts.iter().all(is_own) {
                return Ok(Some(draft.seen(&concept)));
            }
        }
        Ok(Some(draft.new_concept(kind, Some(name), None)))
    }

    /// Returns the concept that the speaker knows: one that was spoken of in this topic before others, of these one of which the speaker
    /// spoke, and of these the one that was spoken of last.
    async fn newest_known<'c>(&self, concepts: &'c [Value]) -> Result<Option<&'c Value>, NexusError> {
        let Teller { person, canvas, topic, .. } = self.teller;
        let mut newest = None;
        for concept in concepts {
            let facts = self.find(MENTIONED_IN, json!({"concept": concept["id"]})).await?;
            let known = facts.iter().filter(|fact| self.teller.knows(fact)).map(StoredFact::of);
            let nearness = |fact: StoredFact<'_>| {
                let is_here = fact.canvas() == Some(canvas) && fact.topic() == Some(topic);
                (is_here, fact.author() == Some(person), fact.stated_at())
            };
            let last = known.map(nearness).max();
            if let Some(last) = last.filter(|last| newest.as_ref().is_none_or(|(known, _)| last > known)) {
                newest = Some((last, concept));
            }
        }
        Ok(newest.map(|(_, concept)| concept))
    }

    /// Returns what a concept is linked to: the one with a name, or the only one that fits.
    async fn linked(
        &self,
        (of, predicate, is_one): (&Handle, &str, bool),
        (kind, sort, name): (Kind, Option<&str>, Option<&str>),
        is_such: impl Fn(&Value, &Value) -> bool,
        draft: &mut Draft,
    ) -> Result<Option<Handle>, NexusError> {
        if name.is_some_and(|name| !is_name(name)) {
            return Ok(None);
        }
        let found = match of.id() {
            Some(id) => self.find(LINKED, json!({"of": id, "predicate": predicate})).await?,
            None => Vec::new(),
        };
        let mut known: Vec<&Value> = Vec::new();
        for row in found.iter().filter(|row| self.teller.knows(&row[2]) && is_such(&row[0], &row[1])) {
            if !known.iter().any(|concept| concept["id"] == row[0]["id"]) {
                known.push(&row[0]);
            }
        }
        let Some(name) = name else {
            // Of friends and neighbours there may be others of whom nothing was said.
            return Ok(match &known[..] {
                [one] if is_one => Some(draft.seen(one)),
                [_, _, ..] if is_one => None,
                _ => Some(draft.new_concept(kind, None, sort)),
            });
        };
        let key = key_of(kind, name);
        let named = |concept: &Value| concept["attributes"]["key"].as_str().map(str::to_owned);
        if let Some(concept) = known.iter().find(|concept| named(concept).is_some_and(|known| known == key)) {
            return Ok(Some(draft.seen(concept)));
        }
        let unnamed: Vec<&&Value> = known.iter().filter(|concept| named(concept).is_none()).collect();
        if let ([one], true) = (&unnamed[..], is_one) {
            return Ok(Some(draft.named(one, name, &key)));
        }
        // In one statement, a name means one: "my brother's wife Wen and I … my sister-in-law Wen".
        let is_it = |known: &Mention| match known {
            Mention::Named(of, known) => *of == kind && key_of(kind, known) == key,
            Mention::Related { name: Some(known), .. } => kind == Kind::Person && key_of(kind, known) == key,
            _ => false,
        };
        if let Some((_, handle)) = self.known.iter().find(|(known, _)| is_it(known)) {
            return Ok(Some(handle.clone()));
        }
        // "Henrike sails", and later "my sister Henrike". A person with another relation to the speaker may be another one of that name.
        let found = self.find(BY_KEY, json!({"kind": kind.type_name(), "key": key})).await?;
        if let Some(concept) = self.newest_known(&found).await? {
            let is_other = match of.id() {
                Some(of) => !self.find(ANY_LINK, json!({"of": of, "concept": concept["id"]})).await?.is_empty(),
                None => false,
            };
            if !is_other {
                return Ok(Some(draft.seen(concept)));
            }
        }
        Ok(Some(draft.new_concept(kind, Some(name), sort)))
    }
}

/// Returns `true` if a link says a relation; those of friends and neighbours have no name.
fn is_relation(relation: &Relation, link: &Value) -> bool {
    !relation.is_stored()
        || link["attributes"]["relation"]
            .as_str()
            .is_some_and(|name| relation.includes.contains(&name) || name == relation.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_their_plain_form() {
        assert_eq!(plain("  Ｈｅｎｒｉｋｅ\u{200b} "), "henrike");
        assert_eq!(plain("The Blue  Door"), "blue door");
        assert_eq!(key_of(Kind::Theme, "dogs"), key_of(Kind::Theme, "Dog"));
        assert_ne!(key_of(Kind::Person, "Rose"), key_of(Kind::Person, "Roses"));
        assert_eq!(key_of(Kind::Theme, "帆船"), "帆船");
    }

    #[test]
    fn a_name_is_said_by_its_words() {
        assert!(is_said_in("Ida", "My sister Ida's boat"));
        assert!(is_said_in("小梅", "我姐姐小梅住在杭州"));
        for (name, text) in [("Ida", "My sister lives in Florida."), ("Tom", "See you tomorrow"), ("", "x")] {
            assert!(!is_said_in(name, text), "{name}");
        }
    }

    #[test]
    fn some_texts_are_no_names() {
        assert!(is_name("Henrike"));
        for no in ["", "$self", "a{b}", &"x".repeat(81)] {
            assert!(!is_name(no), "{no}");
        }
    }
}
