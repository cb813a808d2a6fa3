//! The tools `remember`, `recall` and `forget`.

use jiff::civil;
use knowledge::{Dates, dates};
use nexus::{OUTSIDE, Provenance};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{LifeformToolbox, Wish, called, keeping, recalling};
use super::Talk;
use crate::canvas::user::{UserView, name_in, users_in};
use crate::memory::{Fact, ForgetRequest, Question, Recalled, may_choose};
use crate::reminders::Language;

/// The lengths of a fact, in characters.
const FACT_CHARS: std::ops::RangeInclusive<usize> = 4..=400;
/// The maximum number of facts that `recall` returns.
const RECALLED_MAX: usize = 30;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Remember {
    fact: String,
    #[serde(default)]
    about: Option<String>,
    #[serde(default)]
    until: Option<civil::Date>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recall {
    #[serde(default)]
    about: Option<String>,
    #[serde(default)]
    by: Option<String>,
    #[serde(default)]
    from: Option<civil::Date>,
    #[serde(default)]
    until: Option<civil::Date>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Forget {
    what: String,
}

impl LifeformToolbox {
    /// Keeps a fact as a statement of the person whose message is answered. It takes the place of the sentences of that
    /// message that say the same.
    pub(super) async fn remember(&self, asked: Remember, talk: &Talk) -> Result<Value, String> {
        self.is_asked_still(talk)?;
        let Remember { fact, about, until } = asked;
        let statement: String = fact.split_whitespace().collect::<Vec<_>>().join(" ");
        if !FACT_CHARS.contains(&statement.chars().count()) {
            return Err(format!("a fact has {} to {} characters", FACT_CHARS.start(), FACT_CHARS.end()));
        }
        if knowledge::is_confided(&statement) {
            return Err("passwords and keys are not kept as facts; resource_save keeps them sealed".into());
        }
        let (here, said) = (&talk.here, talk.asked());
        if crate::memory::is_for_nobody(&said.content) {
            return Err("the person wants nobody to know what this message says, so it is not kept".into());
        }
        let people = self.audience_here(here);
        let provenance = talk.tainted.then(|| Provenance {
            audience: Some(people.clone()),
            sources: [OUTSIDE.to_owned(), said.sender.to_string()].into(),
        });
        let subject = about.unwrap_or_else(|| statement.clone());
        let plain = Fact::plain(&statement, &subject);
        let heard_on = said.at.to_zoned(self.zone().0).date();
        let named = dates(&statement, heard_on);
        let dates = Dates { until: until.or(named.until), ..named };
        let fact = Fact { dates, provenance, ..plain };
        let stated = keeping::stated(here, said);
        let kept = self.memory.learn(stated, &[fact], &people, &[], || here.says_still(said), &talk.origin).await;
        let kept = kept.map_err(|error| error.to_string())?;
        let Some(id) = kept.first() else { return Err("the message was taken back, so nothing was kept".into()) };
        // "…on 12 December." and "Sorry, no, it is the 14th." were said in one breath, and the fact is kept for one of them.
        let by_the_same: Vec<_> = here.perception.said.iter().filter(|other| other.sender == said.sender).collect();
        let is_corrected = by_the_same.iter().skip(1).any(|other| other.is_correction());
        for other in by_the_same {
            let stated = keeping::stated(here, other);
            let replaced = self.memory.supersede_restated(stated, id, &statement, is_corrected, &talk.origin).await;
            replaced.map_err(|error| error.to_string())?;
        }
        Ok(json!(format!("Kept: \"{statement}\"")))
    }

    /// Returns the statements of people, as far as those who are here may know it.
    pub(super) async fn recall_for(&self, asked: Recall, talk: &Talk) -> Result<Value, String> {
        let here = &talk.here;
        let (people, sender) = (self.readers_here(here), &talk.asked().sender);
        let readers = self.readers(&people);
        let state = here.canvas.snapshot().state;
        let is_of = |who: &str, name: &str| {
            let own = who.split_once(':').map_or(who, |(_, own)| own);
            let known = name_in(&state, who).map(str::to_lowercase).unwrap_or_default();
            who == name || own.to_lowercase() == name.to_lowercase() || known == name.to_lowercase()
        };
        let by = asked.by.as_deref().filter(|by| !matches!(by.to_lowercase().as_str(), "me" | "user" | "i"));
        let found = match &asked.about {
            Some(about) => {
                let question = Question { asks: sender, by_meaning: true, ..Question::of_words(about) };
                self.memory.recall(question, &[], readers, &talk.origin).await
            }
            None => {
                let known = users_in(&state).filter_map(UserView::id);
                let mut all = people.iter().map(String::as_str).chain(known);
                let by = by.and_then(|by| all.find(|who| is_of(who, by))).unwrap_or(sender);
                self.memory.told_by(by, readers, &talk.origin).await
            }
        };
        let mut found = found.map_err(|error| error.to_string())?;
        let zone = self.zone().0;
        let fits = |fact: &Recalled| {
            let on = fact.stated_at.map(|at| at.to_zoned(zone.clone()).date());
            let is_by = by.is_none_or(|by| fact.person.as_deref().is_some_and(|who| is_of(who, by)));
            // A day that the fact mentions counts like the day of its message.
            let mut days = fact.dates.days().into_iter().flatten().chain(on);
            let is_between = |day: &civil::Date| {
                asked.from.is_none_or(|from| *day >= from) && asked.until.is_none_or(|until| *day <= until)
            };
            is_by && ((asked.from.is_none() && asked.until.is_none()) || days.any(|day| is_between(&day)))
        };
        found.recalled.retain(fits);
        let more = found.left_off + found.recalled.len().saturating_sub(RECALLED_MAX);
        found.recalled.truncate(RECALLED_MAX);
        if found.recalled.is_empty() {
            let more = if found.withheld > 0 { " There is more that not all of them may know." } else { "" };
            return Ok(json!(format!("Nothing that those who are here may know.{more}")));
        }
        let is_filtered = by.is_some() || asked.from.is_some() || asked.until.is_some();
        let excerpts = match found.needs_talk && !is_filtered {
            true => {
                self.excerpts(here, &found.recalled, readers, &talk.origin).await.map_err(|error| error.to_string())?
            }
            false => Vec::new(),
        };
        let notes = recalling::notes((&found.recalled, &excerpts), "", false, &zone, |who| called(&state, who));
        let notes = recalling::concluded(notes, found.concluded.as_deref().filter(|_| !is_filtered));
        let more = if more > 0 { format!("\n… and {more} more.") } else { String::new() };
        Ok(json!(format!("{notes}{more}")))
    }

    /// Forgets the statements of the person about something.
    pub(super) async fn forget_for(&self, asked: Forget, talk: &Talk) -> Result<Value, String> {
        self.is_asked_still(talk)?;
        let said = talk.asked();
        let refused = || Err("this person did not ask to forget that".into());
        let what = Some(asked.what.trim()).filter(|what| !super::is_all(what));
        let may = talk.may_take_away(&asked.what);
        // "The second one" answers the question which of several facts is meant, and means nothing else.
        let offered = self.asked_which(&talk.here, said).map(|(_, known)| known).unwrap_or_default();
        let statements: Vec<String> = offered.iter().map(|(_, statement)| statement.clone()).collect();
        let offered = if may_choose(&said.content, &statements) { offered } else { Vec::new() };
        if !may && (offered.is_empty() || what.is_none()) {
            return refused();
        }
        let mut forgotten = self.to_forget((what, false), said, &talk.origin).await.map_err(super::said_of)?;
        if !may {
            forgotten.gone.retain(|one| offered.iter().any(|(id, _)| *id == one.fact));
            if forgotten.gone.is_empty() {
                return refused();
            }
        }
        self.ask_which(&talk.here, said, &forgotten, &talk.origin).await.map_err(super::said_of)?;
        self.forget(&forgotten.gone, &Wish::in_message(&talk.here, said), &talk.origin)
            .await
            .map_err(super::said_of)?;
        let request = ForgetRequest { what: what.map(str::to_owned), is_all_of_it: false, language: Language::English };
        Ok(json!(request.confirmation(&forgotten, self.is_alone_here(&talk.here, &said.sender))))
    }
}
