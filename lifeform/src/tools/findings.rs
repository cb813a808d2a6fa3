//! The findings of research, and the results of goals: they become records, and their sentences statements, so that they are evidence in
//! the graph. Only the graph tells these statements; the records are recalled by their words.

use std::collections::BTreeSet;

use fascicles::{ToolContext, ToolFailure};
use knowledge::{Learned, Type, dates};
use nexus::Provenance;
use serde_json::{Value, json};
use store::Origin;

use super::goals::{Planned, is_no_finding, topic_of_goal};
use super::{LifeformToolbox, failed, strangers_behind};
use crate::agenda::{ActErrand, GoalStatus};
use crate::memory::{Fact, FoundBy, Stated, statements};

/// The maximum number of statements of one finding.
const STATEMENTS_MAX: usize = 8;

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
        let source = format!("job:{}", context.job);
        let stated =
            Stated { person: &self.me.id.0, topic: &topic, message: &context.job, canvas: &self.home, source: &source };
        let people: BTreeSet<String> = provenance.audience.clone().unwrap_or_default();
        let kept = self.memory.learn(stated, &facts, &people, &[], || true, origin).await;
        let kept = kept.map_err(ToolFailure::passing)?;
        self.memory.form(&kept, origin).await.map_err(ToolFailure::passing)?;
        Ok(())
    }
}
