//! The learning from own work: the findings of research and the results of goals become records, and their sentences statements, so that
//! they are evidence in the graph. Only the graph tells these statements; the records are recalled by their words. A result of a tool
//! becomes a statement as the definition of the tool says.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::work::invocation;
use fascicles::{ToolContext, ToolFailure};
use jiff::{ToSpan, civil};
use knowledge::{Dates, Learned, Type, dates};
use neurons::conversation::calls_made;
use nexus::{OUTSIDE, Provenance};
use serde_json::{Value, json};
use store::Origin;

use super::goals::{Planned, is_no_finding, topic_of_goal};
use super::{LifeformToolbox, ToolScope, failed, strangers_behind};
use crate::agenda::{ActErrand, GoalStatus, StepId};
use crate::memory::{Fact, FoundBy, Stated, statements};
use crate::traced_steps::ANSWERING;

/// The maximum number of statements of one finding.
const STATEMENTS_MAX: usize = 8;

/// Returns dates with the earlier of their end and another one.
fn until(last: Option<civil::Date>, named: Dates) -> Dates {
    Dates { until: last.into_iter().chain(named.until).min(), ..named }
}

impl LifeformToolbox {
    /// Stores the research results for a goal, each answer with its question.
    pub(super) async fn found(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let planned = Planned::of(context);
        // The record uses the words of the goal, so a search for the goal finds it.
        let errand = Self::act_errand(context)?;
        let agenda = self.plans.agenda();
        let of_goal = errand.goal.as_ref().map(|id| self.provenance_of(&agenda, id, context));
        let provenance = of_goal.unwrap_or_else(|| {
            let mut unknown = Provenance::unknown();
            unknown.sources.extend(strangers_behind(context).iter().map(|who| who.to_string()));
            unknown
        });
        let (mut kept, mut passed, mut researched, mut in_vain) = (Vec::new(), 0, Vec::new(), Vec::new());
        for (question, answer) in planned.researched(context) {
            researched.push(question.clone());
            if is_no_finding(&answer) {
                in_vain.push(question);
                continue;
            }
            let kind = Type::Definition;
            let task = format!("{}: {question}", errand.title);
            let kept_now = self.knowledge.learn(kind, &task, &answer, &context.job, &provenance, &origin.cause).await;
            match kept_now.map_err(failed)? {
                Learned::Kept(id) | Learned::Revised(id) => kept.push(id),
                Learned::Confirmed(_) | Learned::Passed(_) => passed += 1,
            }
            self.state(FoundBy::Research, &answer, (context, &errand), &provenance, origin).await?;
        }
        Ok(json!({"kept": kept, "passed": passed, "researched": researched, "in_vain": in_vain}))
    }

    /// States the result of a goal that is reached.
    pub(super) async fn state_result(
        &self,
        context: &ToolContext,
        errand: &ActErrand,
        (status, said): (Option<GoalStatus>, &str),
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let agenda = self.plans.agenda();
        let Some(goal) = errand.goal.as_ref().filter(|_| status == Some(GoalStatus::Done)) else { return Ok(()) };
        let provenance = self.provenance_of(&agenda, goal, context);
        self.state(FoundBy::Goal, said, (context, errand), &provenance, origin).await
    }

    /// Keeps what the calls for an answer teach, for those who read it.
    pub(super) async fn learn_from_answer(
        &self,
        context: &ToolContext,
        here: &ToolScope,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let mut provenance =
            Provenance { sources: [OUTSIDE.to_owned()].into(), audience: Some(self.audience_here(here)) };
        provenance.sources.extend(here.strangers_behind(context).iter().map(|who| who.to_string()));
        for step in ANSWERING {
            let invocation = invocation(&context.job, step, 1);
            self.learn_from_calls(&invocation, (here.topic(), &context.job), &provenance, origin).await?;
        }
        Ok(())
    }

    /// Keeps what the calls of the steps that a job has carried out teach, for the people of their goal.
    pub(super) async fn learn_from_steps(
        &self,
        context: &ToolContext,
        errand: &ActErrand,
        steps: &[StepId],
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let agenda = self.plans.agenda();
        let Some(goal) = errand.goal.as_ref().and_then(|id| agenda.goals.get(id)) else { return Ok(()) };
        let mut provenance = self.provenance_of(&agenda, &goal.id, context);
        provenance.sources.insert(OUTSIDE.to_owned());
        for step in goal.plan.iter().filter(|step| steps.contains(&step.id)) {
            let Some(act) = step.act() else { continue };
            self.learn_from_calls(&act, (&goal.speaks_in(), &context.job), &provenance, origin).await?;
        }
        Ok(())
    }

    /// Keeps what the calls of an invocation teach, as the definitions of their tools say, for an audience. Returns the number of statements.
    pub(super) async fn learn_from_calls(
        &self,
        invocation: &str,
        (topic, message): (&Arc<str>, &str),
        provenance: &Provenance,
        origin: &Origin,
    ) -> Result<usize, ToolFailure> {
        let cards = self.cards().await;
        if cards.iter().all(|card| card.learn.is_empty()) {
            return Ok(0);
        }
        let today = self.memory.now().to_zoned(self.zone().0).date();
        let mut facts: Vec<Fact> = Vec::new();
        let made = calls_made(self.plans.store(), invocation).await.map_err(ToolFailure::passing)?;
        for call in made.iter().filter(|call| call.succeeded) {
            let Some(card) = cards.iter().find(|card| *card.name == *call.tool) else { continue };
            // A result that was shortened, or that is prose, teaches nothing.
            let Ok(result) = serde_json::from_str::<Value>(&call.result) else { continue };
            for lesson in &card.learn {
                let last = lesson.for_days.map(|days| today.saturating_add(i64::from(days - 1).days()));
                facts.extend(lesson.sentences(&call.arguments, &result).into_iter().map(|statement| Fact {
                    dates: until(last, dates(&statement, today)),
                    provenance: Some(provenance.clone()),
                    found_by: Some(FoundBy::Tool),
                    ..Fact::plain(&statement, &statement)
                }));
            }
        }
        let is_open = |said: &str| !knowledge::is_confided(said) && knowledge::without_secrets(said, "tool") == said;
        facts.retain(|fact| is_open(&fact.statement));
        facts.truncate(STATEMENTS_MAX);
        self.keep_found(&facts, (topic, message), provenance, origin).await?;
        Ok(facts.len())
    }

    /// Keeps the sentences of what was found out as statements of the lifeform, for the audience of their provenance, and makes claims
    /// of them.
    async fn state(
        &self,
        by: FoundBy,
        text: &str,
        (context, errand): (&ToolContext, &ActErrand),
        provenance: &Provenance,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let today = self.memory.now().to_zoned(self.zone().0).date();
        let told = statements(text).into_iter().filter(|statement| !knowledge::is_confided(statement));
        let fact = |statement: String| Fact {
            dates: dates(&statement, today),
            provenance: Some(provenance.clone()),
            found_by: Some(by),
            ..Fact::plain(&statement, &statement)
        };
        let facts: Vec<Fact> = told.take(STATEMENTS_MAX).map(fact).collect();
        let topic = errand.topic.clone().or_else(|| errand.speaks_in.clone());
        let topic = topic.unwrap_or_else(|| topic_of_goal(errand.goal.as_deref().unwrap_or_default()));
        self.keep_found(&facts, (&topic, &context.job), provenance, origin).await
    }

    /// Stores facts of the lifeform's own, and makes claims of them.
    async fn keep_found(
        &self,
        facts: &[Fact],
        (topic, message): (&Arc<str>, &str),
        provenance: &Provenance,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let source = format!("job:{message}");
        let stated = Stated { person: &self.me.id.0, topic, message, canvas: &self.home, source: &source };
        let people: BTreeSet<String> = provenance.audience.clone().unwrap_or_default();
        let kept = self.memory.learn(stated, facts, &people, &[], || true, origin).await;
        let kept = kept.map_err(ToolFailure::passing)?;
        self.memory.form(&kept, origin).await.map_err(ToolFailure::passing)?;
        Ok(())
    }
}
