//! The tools of the lifeform's own jobs: goals, schedules, and the maintenance of its mind.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use knowledge::{GoalOutcome, KnowledgeError, Learned, Type};
use nexus::{OUTSIDE, Provenance};
use serde_json::{Value, json};
use store::Origin;

use super::{ERRAND, LifeformToolbox, failed, hears, line_of, marked, rests_on, speakers, strangers_behind, told_of};
use crate::agenda::{Act, Agenda, AgendaItemId, GoalStatus, Outcome};
use crate::canvas::chat;
use crate::maintenance::{self, Task};

/// The maximum number of research jobs for one goal.
const RESEARCHED_MAX: u32 = 3;

impl LifeformToolbox {
    pub(super) fn errand(context: &ToolContext) -> Result<&Value, ToolFailure> {
        let event = context.input.iter().find(|event| &*event.role == ERRAND);
        event.map(|event| &event.content).ok_or_else(|| ToolFailure::fatal("this tool needs an errand to work on"))
    }

    /// Runs maintenance of the mind as `$system`.
    pub(super) async fn maintain(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let task = Self::errand(context)?["maintenance"].clone();
        let task = serde_json::from_value(task).map_err(ToolFailure::fatal)?;
        if task == Task::DistilKnowledge {
            let done = self.knowledge.promote(&origin.cause).await.map_err(failed)?;
            return Ok(json!({"task": task, "done": done, "kip": []}));
        }
        maintenance::run(task, &self.memory, origin.cause.clone()).await.map_err(ToolFailure::passing)
    }

    /// Returns the task and the knowledge about it, for a model.
    pub(super) async fn consider(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let errand = Self::errand(context)?;
        let text = |member: &str| errand[member].as_str().unwrap_or_default();
        let words = format!("{} {}", text("title"), text("description"));
        // The result is posted in the goal's topic, so its readers are the speakers of the topic and the author of the
        // goal.
        let topic = errand["topic"].as_str().map_or_else(|| format!("goal_{}", text("goal")), str::to_owned);
        let mut people = self.canvases.get(&self.home).map(|home| speakers(&home.snapshot().state, &topic));
        let people = people.get_or_insert_default();
        people
            .extend(errand["behind"].as_array().into_iter().flatten().filter_map(|by| by.as_str().map(str::to_owned)));
        // The sources outside read nothing.
        people.retain(|who| hears(who, &self.me) && who != OUTSIDE);
        let found =
            self.memory.recall(&words, &[], self.readers(people), origin).await.map_err(ToolFailure::passing)?;
        let strangers = self.strangers_in(&found.recalled);
        let mut events = vec![json!({"role": "system", "content": self.identity})];
        if !found.recalled.is_empty() {
            let lines: Vec<String> = found.recalled.iter().map(|memory| line_of(memory, "")).collect();
            let ids: Vec<&str> = found.recalled.iter().map(|memory| memory.id.as_str()).collect();
            let metadata = json!({"rests_on": ids});
            let told = format!("What you remember:\n{}", lines.join("\n"));
            events.push(marked(json!({"role": "system", "content": told, "metadata": metadata}), &strangers));
        }
        let strangers = errand["strangers"].as_array().into_iter().flatten();
        let strangers = strangers.filter_map(|who| who.as_str().map(str::to_owned)).collect();
        events.extend(told_of(text("knowledge"), &errand["knows"]).map(|event| marked(event, &strangers)));
        let lines = |member: &str| {
            let lines = errand[member].as_array().into_iter().flatten().filter_map(Value::as_str);
            lines.map(|line| format!("\n- {line}")).collect::<String>()
        };
        let mut told = format!("What you have set out to do: {}", text("title"));
        for (name, more) in
            [("", text("description").to_owned()), ("Your plan:", lines("plan")), ("Notes:", lines("notes"))]
        {
            if !more.is_empty() {
                told.push_str(&format!("\n{name} {more}"));
            }
        }
        told.push_str(&format!("\nWhy now: {}.", text("occasion")));
        events.push(json!({"role": "user", "content": told}));
        Ok(json!({"events": events, "kip": found.kip}))
    }

    /// Posts the message about a goal or schedule in its topic, and stores the outcome.
    pub(super) async fn progress(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let errand = Self::errand(context)?;
        let planned = context.event("plan").map_or(Value::Null, |event| event.content.clone());
        let mut outcome: Outcome = serde_json::from_value(planned.clone()).unwrap_or_default();
        let found =
            context.event("found").and_then(|event| event.content["kept"].as_array().map(Vec::len)).unwrap_or(0);
        let goal = errand["goal"].as_str().and_then(|id| self.plans.agenda().goals.get(id).cloned());
        if found > 0 && goal.is_some_and(|goal| goal.researched < RESEARCHED_MAX) {
            // The research results are recalled when the lifeform resumes the goal.
            outcome.status = outcome.status.filter(|status| *status != GoalStatus::Done).or(Some(GoalStatus::Active));
            outcome.again_in_minutes = 1;
            outcome.researched = true;
        }
        // Another writer may have ended or removed the goal in the meantime. Then nothing is posted.
        self.plans.reload().await.map_err(ToolFailure::passing)?;
        let is_wanted = errand["goal"].as_str().is_none_or(|id| self.plans.agenda().is_open(id));
        let said = match outcome.say.trim() {
            _ if !is_wanted => String::new(),
            // The requested text is posted at its time, whatever the model writes.
            "" if !errand["topic"].is_null() => errand["title"].as_str().unwrap_or_default().to_owned(),
            say => say.to_owned(),
        };
        if !said.is_empty() {
            let canvas = self.canvases.get(&self.home).ok_or_else(|| ToolFailure::passing("its chat is not open"))?;
            let (kind, id) = match errand["goal"].as_str() {
                Some(id) => ("goal", id),
                None => ("schedule", errand["schedule"].as_str().unwrap_or_default()),
            };
            let topic: Arc<str> = errand["topic"].as_str().map_or_else(|| format!("{kind}_{id}").into(), Arc::from);
            let title = errand["title"].as_str().unwrap_or(id).to_owned();
            let turns = chat::Turns::default();
            Self::act(&canvas, chat::Op::TopicCreate { id: topic.clone(), title, turns }, origin).await?;
            let (rests_on, strangers) = (rests_on(context), strangers_behind(context));
            let content = said.chars().take(chat::CONTENT_BYTES_MAX / 4).collect();
            let mut op = chat::Op::say(&topic, Self::answer_id(context), content, None);
            if let chat::Op::Append { rests_on: on, behind, .. } = &mut op {
                let names = errand["behind"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let names: BTreeSet<Arc<str>> = names.map(Arc::from).chain(strangers).collect();
                let names = names.into_iter().filter(|who| *who != self.me.id.0).collect();
                (*on, *behind) = (rests_on, chat::bounded(names));
            }
            Self::act(&canvas, op, origin).await?;
        }
        let kept = self.plans.change(origin, "progress", |agenda, now| {
            let strangers = strangers_behind(context);
            let is_new =
                agenda.progress(&context.job, &outcome, &strangers, &self.me.id, now) || errand["goal"].is_null();
            if is_new {
                agenda.set_own(&outcome.schedules, &self.me.id, now);
            }
            if is_new && !said.is_empty() && errand["topic"].is_null() {
                agenda.spoke(now);
            }
            Ok(())
        });
        kept.await.map_err(ToolFailure::passing)?;
        self.learn_of(context, errand, &planned, &outcome, origin).await?;
        Ok(json!({"said": !said.is_empty()}))
    }

    /// Stores lessons when a goal is reached, abandoned or blocked: the work as a trace, which says whether the goal
    /// was reached, and the model's lesson as a record. A failure to store them does not affect the goal.
    async fn learn_of(
        &self,
        context: &ToolContext,
        errand: &Value,
        planned: &Value,
        outcome: &Outcome,
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let agenda = self.plans.agenda();
        let goal = errand["goal"].as_str().and_then(|id| agenda.goals.get(id));
        let Some(goal) = goal.filter(|goal| outcome.status == Some(goal.status)) else { return Ok(()) };
        let (success, result) = match goal.status {
            GoalStatus::Done => (true, "it is reached"),
            GoalStatus::Blocked => (false, "it cannot go on"),
            GoalStatus::Dropped => (false, "it is given up"),
            GoalStatus::Open | GoalStatus::Active => return Ok(()),
        };
        let result = goal.notes.last().map_or(result, |note| note.text.as_str());
        let deed = GoalOutcome {
            name: context.job.to_string(),
            objective: goal.title.clone(),
            steps: goal.plan.clone(),
            result: result.to_owned(),
            success,
            // A repetition after a crash uses the same time.
            at: goal.set_at,
            provenance: self.provenance_of(&agenda, &goal.id, context),
        };
        let kept = async {
            self.knowledge.record_outcome(&deed, &origin.cause).await?;
            let learned = planned["learned"].as_str().unwrap_or_default();
            if !learned.trim().is_empty() {
                let (task, from) = (&goal.title, &context.job);
                self.knowledge.learn(Type::Strategy, task, learned, from, &deed.provenance, &origin.cause).await?;
            }
            Ok::<_, KnowledgeError>(())
        };
        match kept.await {
            Err(error @ KnowledgeError::Nexus(_)) => Err(ToolFailure::passing(error)),
            Err(error) => {
                tracing::warn!(job = %context.job, %error, "what was done cannot be kept");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Returns the provenance of a record about a goal. Its sources are the people whose words led to the goal, and the
    /// strangers whose words its job has read. Its audience is those people and the speakers in the topic of the goal.
    fn provenance_of(&self, agenda: &Agenda, goal: &AgendaItemId, context: &ToolContext) -> Provenance {
        let behind = agenda.behind(&Act::Goal(goal.clone())).unwrap_or_default();
        let people = behind.iter().map(|who| &**who).filter(|who| hears(who, &self.me));
        let mut provenance = Provenance::of_conversation(people);
        let uses_knowledge = Self::errand(context).is_ok_and(|errand| errand["knows"] != json!([]));
        if provenance.audience.is_none() && uses_knowledge {
            // Nobody asked for it, and it may rest on what was said among few.
            provenance.audience = Some(BTreeSet::new());
        }
        if let Some(audience) = &mut provenance.audience {
            audience.remove(OUTSIDE);
            let there = self.canvases.get(&self.home);
            audience.extend(
                there.map(|home| speakers(&home.snapshot().state, &format!("goal_{goal}"))).unwrap_or_default(),
            );
        }
        provenance.sources.extend(strangers_behind(context).iter().map(|who| who.to_string()));
        provenance
    }

    /// Stores the research results for a goal, each answer with its question.
    pub(super) async fn found(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let planned = context.event("plan").map_or(Value::Null, |event| event.content.clone());
        let findings = context.event("research").map_or(Value::Null, |event| event.content.clone());
        let questions = planned["research"].as_array().into_iter().flatten().filter_map(Value::as_str);
        // The record uses the words of the goal, so a search for the goal finds it.
        let errand = Self::errand(context)?;
        let goal = errand["title"].as_str().unwrap_or_default();
        let agenda = self.plans.agenda();
        let of_goal = errand["goal"].as_str().map(|id| self.provenance_of(&agenda, &id.into(), context));
        let provenance = of_goal.unwrap_or_else(|| {
            let mut unknown = Provenance::unknown();
            unknown.sources.extend(strangers_behind(context).iter().map(|who| who.to_string()));
            unknown
        });
        let answers = findings.as_array().into_iter().flatten();
        let (mut kept, mut passed) = (Vec::new(), 0);
        for (question, answer) in questions.zip(answers) {
            let answer = answer["finding"].as_str().or(answer.as_str()).unwrap_or_default().trim();
            if answer.is_empty() {
                passed += 1;
                continue;
            }
            let kind = Type::Definition;
            let task = format!("{goal}: {question}");
            let kept_now = self.knowledge.learn(kind, &task, answer, &context.job, &provenance, &origin.cause).await;
            match kept_now.map_err(failed)? {
                Learned::Kept(id) | Learned::Revised(id) => kept.push(id),
                Learned::Confirmed(_) | Learned::Passed(_) => passed += 1,
            }
        }
        Ok(json!({"kept": kept, "passed": passed}))
    }
}
