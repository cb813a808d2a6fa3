//! The access of a lifeform to the records of the commons: the records for its prompts, the principals on whose behalf
//! it reads them, and the records that it writes.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use knowledge::{
    Cue, GoalOutcome, Judgement, Knowledge, KnowledgeError, Learned, Lesson, Query, Record, Router, Source, TOP_K_MAX,
    TracedStep, Type, Which,
};
use nexus::kip::graph::Ids;
use nexus::{OUTSIDE, Provenance};
use serde_json::{Map, Value, json};
use store::{Cause, Clock, Origin, Principal, PrincipalId, Scope, Timestamp};

use crate::agenda::Goal;
use crate::canvas::chat::MessageView;
use crate::memory::Gone;
use crate::tools::hears;

/// The maximum numbers of profile records, of records that answer the message, and of briefing records in a prompt.
const PROFILE_MAX: usize = 5;
/// The maximum number of profile records that are read. Some of them may come from conversations with others.
const PROFILES_READ: usize = 64;
const FOUND_MAX: usize = 3;
const BRIEFING_MAX: usize = 3;
/// The minimum score of a record in a prompt.
const SCORE_MIN: f64 = 3.0;
/// The maximum length of a search query, in characters.
const WORDS_MAX: usize = 2_000;
/// The maximum length of the result of a goal that failed, in characters.
const RESULT_CHARS: usize = 240;

/// The access of one lifeform to the commons. Clones share the briefing.
#[derive(Clone)]
pub(crate) struct KnowledgeAccess {
    knowledge: Knowledge,
    clock: Arc<dyn Clock>,
    me: Principal,
    /// The principals whose records the lifeform uses without a search, besides its own and the speaker's.
    trusts: Arc<[PrincipalId]>,
    /// The ids of the briefing records; `None` until the first thought of the process.
    briefing: Arc<RwLock<Option<Vec<String>>>>,
}

/// A message that the lifeform learns from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard<'a> {
    /// The speaker.
    pub(crate) person: &'a str,
    /// The reference of the message, with its place. Message ids are chosen by people and may repeat in other places.
    pub(crate) message: &'a str,
    /// The text.
    pub(crate) content: &'a str,
    /// The time.
    pub(crate) at: Timestamp,
}

impl KnowledgeAccess {
    /// Creates the access of the lifeform `me`.
    pub(crate) fn new(knowledge: Knowledge, clock: Arc<dyn Clock>, me: Principal, trusts: Arc<[PrincipalId]>) -> Self {
        Self { knowledge, clock, me, trusts, briefing: Arc::default() }
    }

    /// The records of the commons.
    pub(crate) fn records(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Returns the origin of a request by the lifeform for itself and, if given, for `person`. The lifeform may then
    /// read and write the person's own records.
    fn acting_for(&self, person: Option<&str>, cause: &Cause) -> Origin {
        let mut me = self.me.clone();
        me.scopes.extend(person.filter(|person| is_person(person)).map(|person| Scope(person.into())));
        Origin::new(me, cause.clone())
    }

    /// Returns `true` if the lifeform may use a record where these people read: see [`Knowledge::may_be_used`].
    fn may_be_told(&self, record: &Record, people: &BTreeSet<String>) -> bool {
        self.knowledge.may_be_used(record, &self.me.id.0, people, |person| self.trusts_word_of(person))
    }

    /// Returns `true` if the lifeform may use a record without a search. Records of untrusted owners are found only by
    /// a search.
    fn is_trusted(&self, record: &Record, person: Option<&str>) -> bool {
        let owner = record.owner.as_str();
        self.me.answers_for(owner)
            || person == Some(owner)
            || owner.starts_with("system:")
            || self.trusts.iter().any(|trusted| *trusted.0 == *owner)
    }

    /// Returns `true` if the statements of `who` count like the lifeform's own: `who` is the lifeform, a system
    /// principal, or a trusted principal.
    pub(crate) fn trusts_word_of(&self, who: &str) -> bool {
        self.me.answers_for(who) || who.starts_with("system:") || self.trusts.iter().any(|trusted| *trusted.0 == *who)
    }

    /// Returns those behind a record whose word does not count like the lifeform's own: its owner, and the principals
    /// that are the sources of its text.
    pub(crate) fn strangers_behind(&self, record: &Record) -> Vec<String> {
        // Others' records are their own words.
        let is_made = record.owner.starts_with("lifeform:");
        let made_of = is_made.then(|| record.provenance.clone().unwrap_or_else(Provenance::unknown));
        let names = made_of.map(|made_of| made_of.sources).into_iter().flatten().chain([record.owner.clone()]);
        names.filter(|who| !self.trusts_word_of(who)).collect()
    }

    /// Returns the trusted owners, as a filter for a search whose results strangers must not displace.
    fn trusted(&self, person: Option<&str>) -> BTreeSet<String> {
        let own = self.me.scopes.iter().map(|scope| &*scope.0).filter(|scope| self.me.answers_for(scope));
        let trusts = self.trusts.iter().map(|trusted| &*trusted.0);
        own.chain(trusts).chain(person).chain([&*self.me.id.0]).map(str::to_owned).collect()
    }

    /// Returns the records for a prompt that answers `words` of the principal `asks`: first the profile, if nobody else
    /// speaks, then the records that answer the words, then the briefing. Each record is one that all speakers may
    /// know.
    ///
    /// # Errors
    /// If the commons cannot be read.
    pub(crate) async fn comes_to_mind(
        &self,
        words: &str,
        asks: &str,
        people: &BTreeSet<String>,
        cause: &Cause,
    ) -> Result<Vec<Record>, KnowledgeError> {
        let person = Some(asks).filter(|_| alone(people, asks));
        let origin = self.acting_for(person, cause);
        let mut offered: Vec<Record> = match person.filter(|person| is_person(person)) {
            Some(person) => {
                let mut profile = self.knowledge.profile(person, PROFILES_READ, &origin).await?;
                profile.retain(|record| self.knowledge.may_come_to_mind(record, &self.me.id.0));
                profile.truncate(PROFILE_MAX);
                profile
            }
            None => Vec::new(),
        };
        // A lexical search only: an answer waits for it, and an embedding call would cost money that nobody agreed to.
        offered.extend(self.answering(words, person, people, Some(Router::Lexical), &origin).await?);
        for id in self.briefing(cause).await? {
            match self.knowledge.get(&id, &origin).await {
                Ok(record) => offered.push(record),
                // The record was deleted or its scopes changed since the briefing.
                Err(KnowledgeError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        offered.retain(|record| self.is_trusted(record, person) && self.may_be_told(record, people));
        offered.retain(|record| self.knowledge.may_come_to_mind(record, &self.me.id.0));
        let mut seen = BTreeSet::new();
        offered.retain(|record| seen.insert(record.id.clone()));
        Ok(offered)
    }

    /// Returns the records that answer `words` best, without profiles.
    async fn answering(
        &self,
        words: &str,
        person: Option<&str>,
        people: &BTreeSet<String>,
        router: Option<Router>,
        origin: &Origin,
    ) -> Result<Vec<Record>, KnowledgeError> {
        let text: String = words.chars().take(WORDS_MAX).collect();
        if text.trim().is_empty() {
            return Ok(Vec::new());
        }
        let which = Which { min_score: Some(SCORE_MIN), of_any: self.trusted(person), ..Which::default() };
        // The limit is higher than needed, because some results belong to strangers, and profiles have their own
        // section.
        let query = Query { which, router, floor: knowledge::FLOOR, ..Query::new(text, TOP_K_MAX) };
        let found = self.knowledge.search(&query, origin).await?;
        let found = found.hits.into_iter().map(|hit| hit.record);
        let fits = |record: &Record| {
            // Patterns and SOPs say what the raw steps of goals come to.
            let is_raw = knowledge::is_trace(record) || knowledge::skill::is_shipped(record);
            let is_profile = record.types.contains(&Type::UserProfile);
            let is_for_me = self.knowledge.may_come_to_mind(record, &self.me.id.0);
            !is_raw && !is_profile && is_for_me && self.is_trusted(record, person) && self.may_be_told(record, people)
        };
        Ok(found.filter(fits).take(FOUND_MAX).collect())
    }

    /// Returns the briefing. It is searched once per process, at the first thought.
    async fn briefing(&self, cause: &Cause) -> Result<Vec<String>, KnowledgeError> {
        let known = self.briefing.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known {
            return Ok(known);
        }
        let offered = self.knowledge.briefing(BRIEFING_MAX, self.trusted(None), &self.acting_for(None, cause)).await?;
        let offered: Vec<String> = offered.into_iter().map(|record| record.id).collect();
        *self.briefing.write().unwrap_or_else(PoisonError::into_inner) = Some(offered.clone());
        Ok(offered)
    }

    /// Returns the records about a goal, best first, that all of `people` may know. `set_by` is the author of the goal,
    /// if nobody else talks about it.
    ///
    /// # Errors
    /// If the commons cannot be read.
    pub(crate) async fn about(
        &self,
        goal: &Goal,
        parent: Option<&Goal>,
        set_by: Option<&str>,
        people: &BTreeSet<String>,
        cause: &Cause,
    ) -> Result<Vec<Record>, KnowledgeError> {
        let above = parent.map_or("", |parent| parent.title.as_str());
        let words = format!("{} {} {above}", goal.title, goal.description);
        self.answering(&words, set_by, people, None, &self.acting_for(set_by, cause)).await
    }

    /// Stores records from a message: the statements that a model extracted, by category, as far as the words support
    /// them. At the `first` call for the message, it also stores plain statements of a person about itself, and
    /// requests to remember something.
    ///
    /// # Errors
    /// If the commons cannot be read or written.
    pub(crate) async fn hear(
        &self,
        heard: Heard<'_>,
        read: &[(String, String)],
        first: bool,
        cause: &Cause,
    ) -> Result<Vec<Learned>, KnowledgeError> {
        let Heard { person, message, content, at } = heard;
        if !is_person(person) {
            return Ok(Vec::new());
        }
        let said = knowledge::without_told(content);
        let mut cues = knowledge::cues(&said);
        let in_so_many_words = cues.len();
        for (category, statement) in read {
            let known = knowledge::CATEGORIES.into_iter().find(|known| known == category);
            let is_new = !cues.iter().any(|cue| knowledge::is_borne_out(statement, &cue.sentence));
            if let Some(category) = known.filter(|_| is_new && knowledge::is_borne_out(statement, &said)) {
                cues.push(Cue { category, slot: None, sentence: statement.clone() });
            }
        }
        // The first call stored these. They may have been deleted since.
        cues.drain(..if first { 0 } else { in_so_many_words });
        let origin = self.acting_for(Some(person), cause);
        let (mut learned, mut refused) = (Vec::new(), None);
        for cue in cues {
            let mut tags = Map::new();
            tags.insert("category".to_owned(), cue.category.into());
            tags.extend(cue.slot.map(|slot| ("slot".to_owned(), slot.into())));
            let lesson = Lesson {
                types: vec![cue.kind()],
                task: format!("{} of {person}", cue.category),
                tags,
                content: cue.sentence,
                owner: person.to_owned(),
                scopes: vec![person.to_owned()],
                message_id: message.to_owned(),
                at,
                agent_id: self.me.id.0.to_string(),
                provenance: None,
                resources: Vec::new(),
            };
            match Box::pin(self.knowledge.learn(lesson, &origin)).await {
                Ok(done) => learned.push(done),
                Err(error @ KnowledgeError::Nexus(_)) => return Err(error),
                // A refused statement does not prevent the storage of the others.
                Err(error) => drop(refused.get_or_insert(error)),
            }
        }
        refused.map_or(Ok(learned), Err)
    }

    /// Keeps the code, the credentials and the cookies of what a person said as the person's resources. Returns their ids.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn keep_materials(&self, heard: Heard<'_>, cause: &Cause) -> Result<Vec<String>, KnowledgeError> {
        let Heard { person, message, content, at } = heard;
        if !is_person(person) {
            return Ok(Vec::new());
        }
        let source = Source { owner: person, reference: message, at, agent: &self.me.id.0 };
        Box::pin(self.knowledge.keep_materials(content, source, &self.acting_for(Some(person), cause))).await
    }

    /// Deletes what was kept of a message or a goal.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn drop_materials(
        &self,
        person: &str,
        reference: &str,
        cause: &Cause,
    ) -> Result<(), KnowledgeError> {
        match is_person(person) {
            true => self.knowledge.drop_materials(reference, &self.acting_for(Some(person), cause)).await.map(drop),
            false => Ok(()),
        }
    }

    /// Withdraws the records from an amended or retracted message, except the records `learned` from its present text.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn unhear(
        &self,
        heard: Heard<'_>,
        learned: &[Learned],
        cause: &Cause,
    ) -> Result<(), KnowledgeError> {
        if is_person(heard.person) {
            let origin = self.acting_for(Some(heard.person), cause);
            Box::pin(self.knowledge.unlearn(heard.message, heard.person, learned, &origin)).await?;
        }
        Ok(())
    }

    /// Stores a lesson that the lifeform learned in a job, as its own record, hidden from others. A record from a
    /// conversation is used only where nobody else reads, and counts as the word of those behind it.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn learn(
        &self,
        kind: Type,
        task: &str,
        content: &str,
        from: &str,
        provenance: &Provenance,
        cause: &Cause,
    ) -> Result<Learned, KnowledgeError> {
        let me = self.me.id.0.to_string();
        let lesson = Lesson {
            types: vec![kind],
            tags: Map::new(),
            task: task.to_owned(),
            content: content.to_owned(),
            owner: me.clone(),
            scopes: vec![me.clone()],
            message_id: from.to_owned(),
            at: self.clock.now(),
            agent_id: me,
            provenance: Some(provenance.clone()),
            resources: Vec::new(),
        };
        Box::pin(self.knowledge.learn(lesson, &self.acting_for(None, cause))).await
    }

    /// Stores the work for a reached goal, and promotes it to patterns where possible.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn record_outcome(&self, deed: &GoalOutcome, cause: &Cause) -> Result<(), KnowledgeError> {
        let origin = self.acting_for(None, cause);
        self.knowledge.record_outcome(deed, &origin).await?;
        self.knowledge.promote(&origin).await.map(drop)
    }

    /// Deletes the records that say what a person asked to forget, as far as the lifeform made them.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn forget(&self, person: &str, gone: &[Gone], cause: &Cause) -> Result<(), KnowledgeError> {
        let origin = self.acting_for(Some(person), cause);
        for Gone { statement, messages, .. } in gone {
            self.knowledge.forget(person, &self.me.id.0, messages, statement, &origin).await?;
        }
        Ok(())
    }

    /// Stores what was carried out for a goal that failed or was abandoned, as the work `name`. Its readers are the people
    /// `behind` the goal.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn record_end_of(
        &self,
        goal: &Goal,
        steps: Vec<TracedStep>,
        name: &str,
        result: &str,
        behind: &[Arc<str>],
        cause: &Cause,
    ) -> Result<(), KnowledgeError> {
        let people = behind.iter().map(|who| &**who).filter(|who| hears(who, &self.me) && *who != OUTSIDE);
        let mut provenance = Provenance::of_conversation(people);
        provenance.sources.extend(behind.iter().map(|who| who.to_string()));
        let deed = GoalOutcome {
            name: name.to_owned(),
            objective: goal.title.clone(),
            steps,
            result: result.chars().take(RESULT_CHARS).collect(),
            success: false,
            at: goal.set_at,
            provenance,
        };
        self.record_outcome(&deed, cause).await
    }

    /// Promotes the lifeform's stored work to patterns, and its patterns to SOPs.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn promote(&self, cause: &Cause) -> Result<Value, KnowledgeError> {
        let climbed = self.knowledge.promote(&self.acting_for(None, cause)).await?;
        Ok(json!(climbed))
    }

    /// Applies a person's judgement of an answer to the records that the answer used. Each person counts once per
    /// answer.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub(crate) async fn judged(
        &self,
        answer: &Answer,
        person: &str,
        helpful: bool,
        cause: &Cause,
    ) -> Result<(), KnowledgeError> {
        let origin = self.acting_for(Some(person), cause);
        // Ids of another form name elements of the lifeform's own mind, not records.
        for record in answer.rests_on.iter().filter(|id| !Ids::is_id(id)) {
            let case = json!({
                // The case names the person, but quotes nothing of a conversation that readers of the record may not
                // know.
                "outcome": if helpful { "it helped" } else { "it did not help" }, "reason": format!("{person} said so"),
                "message_id": format!("{}#{person}", answer.id),
            });
            let Value::Object(case) = case else { continue };
            match self.knowledge.judge(record, Judgement { helpful, case, instead: true }, &origin).await {
                // A record that was deleted, or that the person cannot see, is not judged.
                Ok(_) | Err(KnowledgeError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A posted answer of a lifeform.
pub(crate) struct Answer {
    /// The id of the message.
    pub(crate) id: Arc<str>,
    /// The ids of the concepts and records that it rests on.
    pub(crate) rests_on: Vec<String>,
}

impl Answer {
    pub(crate) fn of(message: MessageView<'_>) -> Self {
        Self { id: message.id().into(), rests_on: message.rests_on().map(str::to_owned).collect() }
    }
}

/// Returns `true` if a person is the only speaker besides lifeforms. The person's own records may then be used.
pub(crate) fn alone(people: &BTreeSet<String>, person: &str) -> bool {
    let is_of_the_house = |other: &str| other.starts_with("lifeform:") || other.starts_with("system:");
    people.iter().all(|other| other == person || is_of_the_house(other))
}

fn is_person(who: &str) -> bool {
    who.starts_with("user:")
}
