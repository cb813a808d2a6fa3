//! The questions of goals about their plans, for the list of approvals: calls that a person approves together with a plan, and
//! the tokens of a goal.

use std::collections::BTreeMap;
use std::sync::Arc;

use neurons::tools::Grant;
use store::{Kind, Origin, Principal, Role, Timestamp};

use super::Lifeforms;
use crate::LifeformError;
use crate::agenda::{Goal, Question};
use crate::canvas::Refusal;
use crate::spec::LifeformId;

/// The number of questions that are looked at for one page.
const PAGE: usize = 256;
/// The end of the ids.
const PLAN: &str = ".plan";

/// A question of a goal about its plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanQuestion {
    /// The id: the job that asked, and `.plan`.
    pub id: Arc<str>,
    /// The lifeform.
    pub lifeform: LifeformId,
    /// The goal.
    pub goal: Arc<str>,
    /// The text of the question.
    pub message: String,
    /// The calls to approve; none for a question about tokens.
    pub calls: Vec<Grant>,
    /// The work of the steps that find arguments of these calls, by step.
    pub finders: BTreeMap<Arc<str>, String>,
    /// The time since which it waits, or later.
    pub since: Timestamp,
}

/// Returns the lifeform, the goal and the message that the id of a question names.
fn parts(id: &str) -> Option<(LifeformId, &str, Arc<str>)> {
    let job = id.strip_suffix(PLAN)?;
    let (lifeform, goal) = job.rsplit_once(".n")?.0.rsplit_once(".goal.")?;
    Some((lifeform.into(), goal, format!("msg_{job}").into()))
}

fn question_of(lifeform: &LifeformId, goal: &Goal) -> Option<PlanQuestion> {
    let (asks, said) = (goal.course.asks.as_ref().filter(|_| !goal.status.is_over())?, goal.said.as_ref()?);
    let calls: Vec<Grant> = match asks {
        Question::Calls { steps } => steps.iter().map(|(_, grant)| grant.clone()).collect(),
        Question::Budget { .. } => Vec::new(),
    };
    let is_finder = |id: &Arc<str>| calls.iter().any(|call| call.takes.values().any(|from| from == id));
    let finders = goal.plan.iter().filter(|step| is_finder(&step.id));
    // The calls stand beside it, whole.
    let text = goal.asks().unwrap_or_default();
    let message = if calls.is_empty() { text } else { text.split("\n\n- ").next().unwrap_or(text) };
    Some(PlanQuestion {
        id: format!("{}{PLAN}", said.strip_prefix("msg_")?).into(),
        lifeform: lifeform.clone(),
        goal: goal.id.clone(),
        message: message.to_owned(),
        finders: finders.map(|step| (step.id.clone(), step.what.clone())).collect(),
        calls,
        since: goal.notes.last().map_or(goal.set_at, |note| note.at),
    })
}

fn is_operator(who: &Principal) -> bool {
    who.may(Role::Operator) && !who.id.0.starts_with("lifeform:")
}

impl Lifeforms {
    /// Returns the open questions about plans that `who` may answer, after the marker `after`, and the start of the next page.
    ///
    /// # Errors
    /// A store error.
    pub async fn plan_questions(
        &self,
        who: &Principal,
        after: &str,
    ) -> Result<(Vec<PlanQuestion>, Option<Arc<str>>), LifeformError> {
        let marks = self.inner.store.documents::<LifeformId>(Kind::Asked, after, PAGE).await?;
        let next = marks.last().filter(|_| marks.len() == PAGE).map(|(name, _)| name.clone());
        let mut questions = Vec::new();
        for (name, lifeform) in marks {
            let (lifeform, goal) = (lifeform.value, name.rsplit('/').next().unwrap_or_default());
            // A lifeform may go in between.
            let (Ok(head), Ok(agenda)) = (self.get(&lifeform).await, self.agenda(&lifeform).await) else { continue };
            let Some(goal) = agenda.goals.get(goal) else { continue };
            if head.definition.may_decide(&agenda, goal, &who.id.0, is_operator(who)) {
                questions.extend(question_of(&lifeform, goal));
            }
        }
        Ok((questions, next))
    }

    /// Returns the question about a plan with an id; `None` if there is none that `who` may answer.
    ///
    /// # Errors
    /// A store error.
    pub async fn plan_question(&self, who: &Principal, id: &str) -> Result<Option<PlanQuestion>, LifeformError> {
        let Some((lifeform, goal, _)) = parts(id) else { return Ok(None) };
        let (Ok(head), Ok(agenda)) = (self.get(&lifeform).await, self.agenda(&lifeform).await) else { return Ok(None) };
        let may = |goal: &&Goal| head.definition.may_decide(&agenda, goal, &who.id.0, is_operator(who));
        let question = agenda.goals.get(goal).filter(may).and_then(|goal| question_of(&lifeform, goal));
        Ok(question.filter(|question| *question.id == *id))
    }

    /// Decides a question about a plan. Returns `false` if there is none with this id that the caller may answer. A repetition of
    /// the same decision changes nothing.
    ///
    /// # Errors
    /// [`LifeformError::Refused`] if another decision was taken.
    pub async fn decide_plan(
        &self,
        origin: &Origin,
        id: &str,
        (approves, comment): (bool, Option<String>),
    ) -> Result<bool, LifeformError> {
        let Some((lifeform, goal, question)) = parts(id) else { return Ok(false) };
        let Ok(head) = self.get(&lifeform).await else { return Ok(false) };
        let who = &origin.principal;
        let refused = || format!("{} said: No. {}", who.id, comment.as_deref().unwrap_or_default());
        let note = (!approves).then(|| refused().trim_end().to_owned());
        let decided = self.change(origin, &lifeform, "plan decided", |agenda, now| {
            let known = agenda.goal(goal)?;
            if !head.definition.may_decide(agenda, known, &who.id.0, is_operator(who)) {
                return Err(Refusal::Missing("no question has this id".into()));
            }
            agenda.decide_plan(goal, &question, (approves, note.clone()), &who.id, now)
        });
        match decided.await {
            Ok(_) => Ok(true),
            Err(LifeformError::Refused(Refusal::Missing(_))) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_question_names_its_goal_and_its_message() {
        let (lifeform, goal, message) = parts("lf_a.b.goal.g12.n3.plan").unwrap();
        assert_eq!((&*lifeform, goal, &*message), ("lf_a.b", "g12", "msg_lf_a.b.goal.g12.n3"));
        for other in ["", "x.plan", "lf.goal.g1.n1", "lf.goal.g1.w1", "lf.goal.g1.plan"] {
            assert!(parts(other).is_none(), "{other}");
        }
    }
}
