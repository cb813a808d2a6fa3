//! The query that a model reads in a question that the rules do not read. A name, a word and a kind count only if the question
//! says them, so the model cannot ask for anything else. What is left of a query without the claims that cannot be read answers
//! nothing, but leads to those of whom the question speaks.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::kinds_of;
use super::query::{Concept, Identity, LINKS_MAX, Link, Query};
use crate::formation::reading::{person, says};
use crate::formation::vocabulary::Relation;
use crate::formation::{Kind, Mention, Predicates, plain};

/// A question as a model writes it.
#[derive(Debug, Deserialize)]
struct Written {
    #[serde(default)]
    asks: String,
    #[serde(default)]
    counts: bool,
    #[serde(default)]
    claims: Vec<WrittenClaim>,
}

/// A claim with unknowns: names that begin with a question mark.
#[derive(Debug, Deserialize)]
struct WrittenClaim {
    s: String,
    p: String,
    o: String,
    #[serde(default)]
    relation: String,
}

/// The query with the terms that stand for its concepts.
struct Reading<'q> {
    /// The question, in its plain form.
    question: &'q str,
    query: Query,
    terms: Vec<(String, usize)>,
}

/// A question as a model read it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    /// The claims that could be read, as a query.
    pub(crate) query: Query,
    /// `true` if these are all of the question's.
    pub(crate) is_whole: bool,
}

/// Returns what a model read in a question; `None` if the question bears out nothing of it.
pub(crate) fn read(answer: &Value, question: &str, predicates: &Predicates) -> Option<Read> {
    let written = Written::deserialize(answer).ok().filter(|written| written.claims.len() <= LINKS_MAX)?;
    let question = plain(question);
    let mut reading =
        Reading { question: &question, query: Query { counts: written.counts, ..Query::default() }, terms: Vec::new() };
    let mut is_whole = true;
    for claim in &written.claims {
        let known = (reading.query.clone(), reading.terms.len());
        if reading.link(claim, predicates).is_none() {
            // A claim leaves nothing behind that could not be read.
            reading.query = known.0;
            reading.terms.truncate(known.1);
            is_whole = false;
        }
    }
    let asked = written.asks.trim().to_lowercase();
    let asked = reading.terms.iter().find(|(term, _)| *term == asked).map(|(_, at)| *at);
    let asked = asked.filter(|at| reading.query.concepts[*at].identity == Identity::Any);
    let query = Query { asked: asked.unwrap_or_default(), ..reading.query };
    let is_whole = is_whole && asked.is_some() && query.can_be_asked();
    let query = query.in_order();
    (is_whole || query.leads_somewhere()).then_some(Read { query, is_whole })
}

impl Reading<'_> {
    fn says(&self, words: &str) -> bool {
        says(self.question, &plain(words), true)
    }

    /// Adds the link of a claim.
    fn link(&mut self, claim: &WrittenClaim, predicates: &Predicates) -> Option<()> {
        let (subject_kind, object_kind) = predicates.kinds(&claim.p)?;
        let subject = self.concept(&claim.s, subject_kind)?;
        let object = self.concept(&claim.o, object_kind)?;
        let relation = match claim.relation.trim() {
            "" => None,
            named => Some(Relation::of_words(named).filter(|relation| relation.predicate == claim.p)?),
        };
        let relations = relation.map_or(&[][..], |relation| relation.includes);
        self.query.links.push(Link { subject, predicate: Some(Cow::Owned(claim.p.clone())), relations, object });
        Some(())
    }

    /// Returns the place of the concept of a term: an unknown, a name, a person by its relation.
    fn concept(&mut self, term: &str, kind: Kind) -> Option<usize> {
        let term = term.trim();
        let (own, sort) = match term.strip_suffix([')', '）']).and_then(|term| term.split_once(['(', '（'])) {
            Some((own, sort)) => (own.trim(), Some(sort.trim())),
            None => (term, None),
        };
        let key = own.to_lowercase();
        let known = self.terms.iter().find(|(known, _)| *known == key).map(|(_, at)| *at);
        let at = match own.starts_with(['?', '？']) {
            _ if known.is_some() => known?,
            true => self.query.add(Concept::of(Identity::Any)),
            false if kind == Kind::Person => self.person(&person(own)?)?,
            false => {
                self.says(own).then_some(())?;
                self.query.add(Concept::of(Identity::Named(kind, own.to_owned())))
            }
        };
        if let Some(sort) = sort {
            // Without a kind that the question does not say, other things would count.
            self.says(sort).then_some(())?;
            self.query.concepts[at].kinds = kinds_of(sort);
        }
        if known.is_none() {
            self.terms.push((key, at));
        }
        Some(at)
    }

    /// Returns the place of a person, with the links by which the question names it ("my sister").
    fn person(&mut self, mention: &Mention) -> Option<usize> {
        Some(match mention {
            Mention::Speaker => match self.query.concepts.iter().position(|one| one.identity == Identity::Asker) {
                Some(at) => at,
                None => self.query.add(Concept::of(Identity::Asker)),
            },
            Mention::Named(_, name) => {
                self.says(name).then_some(())?;
                self.query.add(Concept::of(Identity::Named(Kind::Person, name.clone())))
            }
            Mention::Related { of, relation, name } => {
                let subject = self.person(of)?;
                let identity = match name {
                    Some(name) if !self.says(name) => return None,
                    Some(name) => Identity::Named(Kind::Person, name.clone()),
                    None => Identity::Any,
                };
                let object = self.query.add(Concept::of(identity));
                let predicate = Some(Cow::Borrowed(relation.predicate));
                self.query.links.push(Link { subject, predicate, relations: relation.includes, object });
                object
            }
            Mention::Last | Mention::Owned { .. } => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the links of a query in words.
    fn links(query: &Query) -> Vec<String> {
        let name = |at: usize| match &query.concepts[at].identity {
            Identity::Any | Identity::AnyPerson => format!("?{at}"),
            Identity::Asker => "I".to_owned(),
            Identity::Named(_, name) => name.clone(),
        };
        let of = |link: &Link| {
            let predicate = link.predicate.as_deref().unwrap_or("*");
            format!("{} {predicate}[{}] {}", name(link.subject), link.relations.join("/"), name(link.object))
        };
        query.links.iter().map(of).collect()
    }

    /// Returns the query of a question that is read whole.
    fn whole(answer: &Value, question: &str) -> Option<Query> {
        read(answer, question, &Predicates::default()).filter(|read| read.is_whole).map(|read| read.query)
    }

    #[test]
    fn what_can_be_read_leads_to_those_of_whom_the_question_speaks() {
        let answer = json!({"asks": "?x", "claims": [
            {"s": "?p", "p": "builds", "o": "?x"}, {"s": "I", "p": "partner_of", "o": "?p"}, {"s": "?p", "p": "likes", "o": "jazz"},
        ]});
        let found = read(&answer, "What's my husband building in the shed?", &Predicates::default()).unwrap();
        assert_eq!((links(&found.query), found.is_whole), (vec!["I partner_of[] ?1".to_owned()], false));
        let nothing = json!({"asks": "?x", "claims": [{"s": "?x", "p": "builds", "o": "?y"}]});
        assert_eq!(read(&nothing, "Who builds canoes?", &Predicates::default()), None);
        let nobody = json!({"asks": "?x", "claims": [{"s": "?x", "p": "partner_of", "o": "?y"}]});
        assert_eq!(read(&nobody, "Who is married?", &Predicates::default()), None, "it names nobody");
    }

    #[test]
    fn a_question_of_several_conditions_becomes_a_query() {
        let question = "Which of my colleagues is married to someone from Riga?";
        let answer = json!({"asks": "?x", "counts": false, "claims": [
            {"s": "?y", "p": "comes_from", "o": "Riga"},
            {"s": "I", "p": "colleague_of", "o": "?x"},
            {"s": "?x", "p": "partner_of", "o": "?y"},
        ]});
        let query = whole(&answer, question).unwrap();
        assert_eq!(links(&query), ["I colleague_of[] ?3", "?3 partner_of[] ?0", "?0 comes_from[] Riga"]);
        assert_eq!((query.asked, query.counts), (3, false));
    }

    #[test]
    fn a_person_by_its_relation_and_a_thing_by_its_kind_are_read() {
        let answer = json!({"asks": "?d", "claims": [{"s": "my boss", "p": "owns", "o": "?d (dog)"}]});
        let query = whole(&answer, "what's my boss's dog called?").unwrap();
        assert_eq!(links(&query), ["I knows[boss] ?1", "?1 owns[] ?2"]);
        assert_eq!(query.concepts[query.asked].kinds, ["dog"]);
        let answer = json!({"asks": "?x", "claims": [
            {"s": "I", "p": "relative_of", "relation": "sister", "o": "?s"},
            {"s": "?s", "p": "lives_in", "o": "?c"}, {"s": "kenji", "p": "lives_in", "o": "?c"},
            {"s": "kenji", "p": "knows", "relation": "boss", "o": "?x"},
        ]});
        let query = whole(&answer, "私の姉と同じ町に住んでるkenjiの上司は？").unwrap();
        assert_eq!(query.links.len(), 4);
    }

    #[test]
    fn what_the_question_does_not_say_is_not_asked() {
        let question = "Who of my friends sails?";
        let friend = json!({"s": "I", "p": "friend_of", "o": "?x"});
        let with = |claim: Value| json!({"asks": "?x", "claims": [friend, claim]});
        assert!(whole(&with(json!({"s": "?x", "p": "does", "o": "sailing"})), question).is_some());
        for claim in [
            json!({"s": "?x", "p": "does", "o": "chess"}),
            json!({"s": "?x", "p": "friend_of", "o": "Eva"}),
            json!({"s": "?x", "p": "hates", "o": "?y"}),
            json!({"s": "?y", "p": "does", "o": "?z"}),
            json!({"s": "?x", "p": "relative_of", "relation": "enemy", "o": "?y"}),
            json!({"s": "?x", "p": "owns", "o": "?d (dog)"}),
            json!({"s": "?x"}),
        ] {
            assert_eq!(whole(&with(claim.clone()), question), None, "{claim}");
        }
        let all = json!({"asks": "?x", "claims": [{"s": "?x", "p": "lives_in", "o": "?y"}]});
        assert_eq!(whole(&all, question), None);
        assert_eq!(whole(&json!({"asks": "I", "claims": [friend]}), question), None);
        let many: Vec<Value> = (0..7).map(|_| friend.clone()).collect();
        assert_eq!(whole(&json!({"asks": "?x", "claims": many}), question), None);
    }
}
