//! The records in an agent's prompt (MISSION R3, R4): profiles of the speaker, and records in the agent's own scopes.
//! Marks around each record declare it as data and prevent that it is learned again.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::PoisonError;

use jiff::{SignedDuration, Timestamp};
use nexus::kip::datum::Sym;
use nexus::kip::graph::{ElementId, ElementRef};
use store::Origin;

use crate::list::{Which, newest};
use crate::record::{KIND, Record, Type};
use crate::{Knowledge, KnowledgeError, commons, read, scope};

/// The number of elements scanned per batch.
const STRETCH: usize = 4_096;
/// The maximum length of a record's content in a prompt, and of its task, in characters.
const CONTENT_CHARS: usize = 400;
const TASK_CHARS: usize = 160;
/// The maximum number of people in the cache of profiles, and the time after which an entry is read again. A record
/// that becomes a profile later is found then.
const PEOPLE_MAX: usize = 4_096;
const KEPT_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The cached profiles by person, with the position up to which the commons were scanned.
pub(crate) type Profiles = HashMap<String, Known>;

/// An entry of [`Profiles`].
pub(crate) struct Known {
    upto: ElementId,
    since: Timestamp,
    found: Vec<ElementId>,
}

impl Knowledge {
    /// Returns the profiles of a person in the person's own scope, the most confident first. New records are included
    /// immediately.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read.
    pub async fn profile(&self, person: &str, count: usize, origin: &Origin) -> Result<Vec<Record>, KnowledgeError> {
        let now = self.store.clock().now();
        let which = Which { types: [Type::UserProfile].into(), scopes: [person.to_owned()].into(), ..Which::default() };
        let sight = self.nexus.sight(&commons(), origin, None).await?;
        let mut records = sight.look(|graph| {
            let fits = |el: ElementId| {
                let mut fits = false;
                graph.look(el, &mut |look| {
                    fits = matches!(look, ElementRef::Concept(concept) if which.fits(concept, now))
                });
                fits
            };
            let mut people = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
            people.retain(|_, known| now.duration_since(known.since) < KEPT_FOR);
            if people.len() >= PEOPLE_MAX {
                people.clear();
            }
            let fresh = || Known { upto: ElementId::NONE, since: now, found: Vec::new() };
            let known = people.entry(person.to_owned()).or_insert_with(fresh);
            loop {
                let stretch = graph.of_type(Sym::new(KIND), known.upto, STRETCH);
                let Some(last) = stretch.last() else { break };
                known.upto = *last;
                known.found.extend(stretch.iter().filter(|el| fits(**el)));
            }
            known.found.iter().filter(|el| fits(**el)).filter_map(|el| read(graph, *el)).collect::<Vec<Record>>()
        })?;
        let worth = |record: &Record| (record.eval.confidence, record.eval.quality());
        records.sort_by(|one, other| {
            let ((sure, good), (own_sure, own_good)) = (worth(other), worth(one));
            sure.total_cmp(&own_sure).then(good.total_cmp(&own_good)).then(other.updated_at.cmp(&one.updated_at))
        });
        records.truncate(count);
        Ok(records)
    }

    /// Returns the records in an agent's own scopes by principals that it trusts, ordered by nearest scope and then by
    /// quality. They brief the agent at its start. Public records are found by search, and profiles when people speak.
    ///
    /// # Errors
    /// Returns an error if the commons cannot be read.
    pub async fn briefing(
        &self,
        count: usize,
        of_any: BTreeSet<String>,
        origin: &Origin,
    ) -> Result<Vec<Record>, KnowledgeError> {
        let now = self.store.clock().now();
        let own = origin.principal.scopes.iter().map(|scope| scope.0.to_string());
        let which = Which { scopes: own.filter(|own| own != scope::PUBLIC).collect(), of_any, ..Which::default() };
        let sight = self.nexus.sight(&commons(), origin, None).await?;
        let found = sight.look(|graph| newest(graph, &which, None, usize::MAX, now))?;
        let is_told = |record: &Record| !record.types.contains(&Type::UserProfile) && record.eval.quality() >= 0.0;
        let mut found: Vec<Record> = found.into_iter().map(|(_, record)| record).filter(is_told).collect();
        let near = |record: &Record| scope::nearest(&record.scopes, &origin.principal);
        found.sort_by(|one, other| {
            let by_worth = other.eval.quality().total_cmp(&one.eval.quality());
            near(one).cmp(&near(other)).then(by_worth).then(other.updated_at.cmp(&one.updated_at))
        });
        found.truncate(count);
        Ok(found)
    }
}

/// Returns records as text for a prompt, each within its marks.
pub fn as_told(records: &[Record]) -> String {
    let mut text = String::new();
    for record in records {
        let types: Vec<&str> = record.types.iter().map(|one| one.as_str()).collect();
        let (task, content) = (short(&record.task, TASK_CHARS), short(&record.content, CONTENT_CHARS));
        let _ = writeln!(
            text,
            "<knowledge id=\"{}\" types=\"{}\">{task}: {content}</knowledge>",
            record.id,
            types.join(" ")
        );
    }
    text
}

/// Returns the start of a text, in which no mark can end the marks around it.
fn short(text: &str, chars_max: usize) -> String {
    let mut cut: String = text.chars().take(chars_max).collect();
    if text.chars().nth(chars_max).is_some() {
        cut.push('…');
    }
    cut.replace("<knowledge", "‹knowledge").replace("</knowledge", "‹/knowledge")
}
