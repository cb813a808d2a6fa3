//! The tools of the lifeform's own jobs: goals, schedules, and the maintenance of its mind.

use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{ToolContext, ToolFailure};
use knowledge::{GoalOutcome, KnowledgeError, Type};
use nexus::Provenance;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Cause, Origin};

use super::steps::{ShownCards, intended, steps_in_words};
use super::{
    LifeformToolbox, called, cut, failed, hears, marked, notes, readers_of_topic, rests_on, strangers_behind, told_of,
    unmarked,
};
use crate::agenda::plan::PlannedStep;
use crate::agenda::{Act, ActErrand, Agenda, AgendaItemId, ERRAND, Errand, Goal, GoalStatus, Outcome, StepId, Subgoal};
use crate::canvas::Canvas;
use crate::canvas::chat::{self, MessageStatus};
use crate::maintenance::{self, Task};
use crate::memory::Question;
use crate::reminders::Language;
use crate::shared_knowledge::Heard;
use crate::traced_steps::traced_steps;

/// The maximum length of a message in the steps of a goal, in characters.
pub(super) const STEP_CHARS: usize = 160;
/// The maximum number of research jobs for one goal.
const RESEARCHED_MAX: u32 = 3;
/// The time after which a goal without a next time is looked at, in minutes.
const IDLE_MINUTES: u32 = 24 * 60;

/// The plan for a goal, as a model writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Planned {
    #[serde(flatten)]
    pub(super) outcome: Outcome,
    /// The steps that are left.
    pub(super) steps: Vec<PlannedStep>,
    /// The words to look for a tool that was not shown; empty if none is missing.
    pub(super) find: String,
    /// The questions to research before the goal is pursued further.
    research: Vec<String>,
    /// The lesson of a goal that has ended.
    learned: String,
}

impl Planned {
    /// Returns the plan of a job's model; an empty plan if the model wrote none.
    pub(super) fn of(context: &ToolContext) -> Self {
        context.event("plan").and_then(|event| Self::deserialize(&event.content).ok()).unwrap_or_default()
    }

    /// Returns the questions that the job has researched, each with its finding, which may be empty.
    pub(super) fn researched(&self, context: &ToolContext) -> Vec<(String, String)> {
        let findings = context.event("research").and_then(|event| event.content.as_array());
        let finding =
            |answer: &Value| answer["finding"].as_str().or(answer.as_str()).unwrap_or_default().trim().to_owned();
        let findings = findings.into_iter().flatten().map(finding);
        let asked = context.event("questions").and_then(|event| Self::deserialize(&event.content).ok());
        let asked = asked.map_or_else(|| self.research.clone(), |asked| asked.research);
        asked.into_iter().zip(findings).collect()
    }

    /// Returns the questions for which the job has found something, each with its finding.
    pub(super) fn findings(&self, context: &ToolContext) -> Vec<(String, String)> {
        self.researched(context).into_iter().filter(|(_, finding)| !is_no_finding(finding)).collect()
    }
}

/// The beginnings of answers that say that nothing was found, or that the model will not answer.
const NO_FINDINGS: [&str; 26] = [
    "the records of what was learned hold nothing",
    "the records hold nothing",
    "the records say nothing",
    "there are no records",
    "no records",
    "i found nothing",
    "i'm sorry",
    "i am sorry",
    "sorry",
    "i can't",
    "i cannot",
    "i could not find",
    "i couldn't find",
    "i don't have",
    "i do not have",
    "as an ai",
    "unfortunately",
    "no information",
    "nothing was found",
    "nothing found",
    "there is no information",
    "抱歉",
    "对不起",
    "没有找到",
    "申し訳",
    "見つかりません",
];

/// Returns `true` if the answer of a research job is empty, a refusal, or says that there is nothing. Such an answer is
/// no knowledge.
pub(super) fn is_no_finding(answer: &str) -> bool {
    let answer = answer.trim().to_lowercase().replace('’', "'");
    answer.is_empty() || NO_FINDINGS.iter().any(|beginning| answer.starts_with(beginning))
}

/// Returns a goal that serves another as a line for a model.
fn line_of(goal: &Subgoal) -> String {
    let status = json!(goal.status);
    let result = if goal.result.is_empty() { String::new() } else { format!(": {}", goal.result) };
    format!("{} ({}){result}", goal.title, status.as_str().unwrap_or_default())
}

/// Returns the id of the topic in which a lifeform speaks about a goal that was not asked for in a talk.
pub(super) fn topic_of_goal(goal: &str) -> Arc<str> {
    format!("goal_{goal}").into()
}

impl LifeformToolbox {
    pub(super) fn errand(context: &ToolContext) -> Result<Errand, ToolFailure> {
        let event = context.input.iter().find(|event| &*event.role == ERRAND);
        let event = event.ok_or_else(|| ToolFailure::fatal("this tool needs an errand to work on"))?;
        Errand::deserialize(&event.content).map_err(ToolFailure::fatal)
    }

    pub(super) fn act_errand(context: &ToolContext) -> Result<ActErrand, ToolFailure> {
        match Self::errand(context)? {
            Errand::Act(errand) => Ok(*errand),
            Errand::Maintenance { .. } | Errand::Thought { .. } => {
                Err(ToolFailure::fatal("this tool needs a goal or a schedule"))
            }
        }
    }

    /// Runs maintenance of the mind as `$system`.
    pub(super) async fn maintain(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let Errand::Maintenance { maintenance: task, way, .. } = Self::errand(context)? else {
            return Err(ToolFailure::fatal("this tool needs a maintenance task"));
        };
        if task == Task::DistilKnowledge {
            let done = self.knowledge.promote(&origin.cause).await.map_err(failed)?;
            return Ok(json!({"task": task, "done": done, "kip": []}));
        }
        if task == Task::FormClaims {
            self.learn_of_maps(&maintenance::gardener(origin.cause.clone())).await?;
        }
        maintenance::run(task, way, &self.memory, origin.cause.clone()).await.map_err(ToolFailure::passing)
    }

    /// Returns the readers of what a goal or schedule says: the speakers of its topic, and the person who set it.
    pub(crate) fn readers_of_act(&self, errand: &ActErrand) -> BTreeSet<String> {
        let topic = errand.topic.clone().or_else(|| errand.speaks_in.clone());
        let topic = topic.unwrap_or_else(|| topic_of_goal(errand.goal.as_deref().unwrap_or_default()));
        let home = self.canvases.get(&self.home);
        let mut people =
            home.map(|home| readers_of_topic(&home.snapshot().state, &topic, &self.memory)).unwrap_or_default();
        people.extend(errand.asked_by.iter().map(|by| by.to_string()));
        people.retain(|who| hears(who, &self.me));
        people
    }

    /// Returns the task and the knowledge about it, for a model.
    pub(super) async fn consider(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let errand = Self::act_errand(context)?;
        if errand.replan.is_none() {
            return Ok(json!({"events": [], "kip": [], "replan": null}));
        }
        let words = format!("{} {}", errand.title, errand.description);
        let question = Question { by_meaning: !errand.supply.small, ..Question::of_words(&words) };
        let people = self.readers_of_act(&errand);
        let found =
            self.memory.recall(question, &[], self.readers(&people), origin).await.map_err(ToolFailure::passing)?;
        let strangers = self.strangers_in(&found.recalled.iter().collect::<Vec<_>>());
        let mut events = vec![self.situation_alone(&people, errand.supply, origin).await?];
        if !found.recalled.is_empty() {
            let ids: Vec<&str> = found.recalled.iter().map(|memory| memory.id.as_str()).collect();
            let metadata = json!({"rests_on": ids});
            let remembered =
                notes((&found.recalled, &[]), "", errand.supply.small, &self.zone().0, |who| self.name_at_home(who));
            events.push(marked(json!({"role": "system", "content": remembered, "metadata": metadata}), &strangers));
        }
        let strangers = errand.strangers.iter().cloned().collect();
        events.extend(told_of(&errand.knowledge, &json!(errand.knows)).map(|event| marked(event, &strangers)));
        let cards = if errand.acts { self.likely_cards(&errand, origin).await } else { ShownCards::default() };
        let foreign = errand.plan.iter().any(|step| step.foreign);
        let metadata = json!({"untrusted": foreign});
        events.push(json!({"role": "user", "content": self.task_of(&errand, &cards), "metadata": metadata}));
        Ok(json!({"events": events, "kip": found.kip, "replan": errand.replan}))
    }

    /// Returns a goal or a schedule as text for a model. All parts but the occasion are words of people, each in marks.
    fn task_of(&self, errand: &ActErrand, cards: &ShownCards) -> String {
        let lines = |lines: &[String]| lines.iter().map(|line| format!("\n- {line}")).collect::<String>();
        let by = errand.asked_by.as_ref().filter(|who| hears(who, &self.me)).map(|who| self.name_at_home(who));
        let serving = |goals: &[Subgoal]| goals.iter().map(line_of).collect::<Vec<_>>();
        let (subgoals, siblings) = (serving(&errand.subgoals), serving(&errand.siblings));
        let zone = self.zone().0;
        let deadline = errand.deadline.map(|at| at.to_zoned(zone).strftime("%A %-d %B %Y, %H:%M").to_string());
        let mut task = "What you have set out to do:\n<task>".to_owned();
        for (mark, text) in [
            ("title", errand.title.clone()),
            ("details", errand.description.clone()),
            ("asked_by", by.unwrap_or_default()),
            ("serves", errand.parent.clone().unwrap_or_default()),
            ("known_of_that", lines(&errand.of_parent)),
            ("beside_it", lines(&siblings)),
            ("deadline", deadline.unwrap_or_default()),
            ("plan", lines(&if errand.acts { Vec::new() } else { intended(&errand.plan) })),
            ("steps", lines(&if errand.acts { steps_in_words(&errand.plan) } else { Vec::new() })),
            ("fault", errand.fault.clone().unwrap_or_default()),
            ("tools", lines(&cards.lines)),
            ("tools_that_you_looked_for", lines(&cards.found)),
            ("more_tools_by_name", cards.names.join(", ")),
            ("subgoals", lines(&subgoals)),
            ("goal_notes", lines(&errand.notes.iter().map(|note| self.with_name(note)).collect::<Vec<_>>())),
            ("nothing_found_about", lines(&errand.not_found)),
        ] {
            if !text.is_empty() {
                task.push_str(&format!("\n<{mark}>{}</{mark}>", unmarked(&text)));
            }
        }
        task.push_str(&format!("\n</task>\nWhy now: {}.", errand.occasion));
        task
    }

    /// Returns a note on a goal with the name of its author instead of the id.
    fn with_name(&self, note: &str) -> String {
        match note.split_once(" said: ") {
            Some((who, said)) if who.starts_with("user:") || who.starts_with("lifeform:") => {
                format!("{} said: {said}", self.name_at_home(who))
            }
            _ => note.to_owned(),
        }
    }

    /// Returns the questions of a plan that were not researched in vain before, and as many as the goal may still
    /// research.
    pub(super) fn questions(&self, context: &ToolContext) -> Result<Value, ToolFailure> {
        let errand = Self::act_errand(context)?;
        let goal = errand.goal.as_ref().and_then(|id| self.plans.agenda().goals.get(id).cloned());
        let is_over = goal.as_ref().is_some_and(|goal| goal.researched >= RESEARCHED_MAX);
        let not_found = goal.map(|goal| goal.not_found).unwrap_or_default();
        let is_new = |question: &String| !not_found.iter().any(|known| knowledge::says_the_same(known, question));
        let research = Planned::of(context).research;
        let questions: Vec<String> = research.into_iter().filter(|question| !is_over && is_new(question)).collect();
        Ok(json!({"research": questions}))
    }

    /// Returns the display name of a principal on the lifeform's own chat.
    pub(super) fn name_at_home(&self, who: &str) -> String {
        let home = self.canvases.get(&self.home).map(|home| home.snapshot().state);
        match home {
            Some(state) => called(&state, who),
            None => who.split_once(':').map_or(who, |(_, name)| name).to_owned(),
        }
    }

    /// Posts the message about a goal or schedule in its topic, and stores the outcome.
    pub(super) async fn progress(&self, context: &ToolContext, origin: &Origin) -> Result<Value, ToolFailure> {
        let errand = Self::act_errand(context)?;
        let planned = Planned::of(context);
        let mut outcome = planned.outcome.clone();
        let found =
            context.event("found").and_then(|event| event.content["kept"].as_array().map(Vec::len)).unwrap_or(0);
        let researched = context.event("found").and_then(|event| event.content["researched"].as_array());
        let questions = researched.into_iter().flatten().filter_map(Value::as_str);
        outcome.steps = questions.map(|question| format!("research: {question}")).collect();
        let in_vain = context.event("found").and_then(|event| event.content["in_vain"].as_array());
        outcome.not_found = in_vain.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let goal = errand.goal.as_ref().and_then(|id| self.plans.agenda().goals.get(id).cloned());
        let is_of_a_talk = goal.as_ref().is_some_and(|goal| goal.topic.is_some());
        if found > 0 && goal.is_some_and(|goal| goal.researched < RESEARCHED_MAX) {
            // The research results are recalled when the lifeform resumes the goal.
            outcome.status = outcome.status.filter(|status| *status != GoalStatus::Done).or(Some(GoalStatus::Active));
            outcome.again_in_minutes = 1;
            outcome.researched = true;
        }
        Box::pin(self.take_outcomes(context, &errand, &mut outcome)).await?;
        let carried_out: Vec<StepId> = outcome.wave.iter().map(|(step, ..)| step.clone()).collect();
        Box::pin(self.learn_from_steps(context, &errand, &carried_out, origin)).await?;
        // What was scheduled and takes several steps becomes a goal.
        let is_large = errand.acts && errand.goal.is_none() && !planned.steps.is_empty();
        if let Some(goal) = errand.goal.as_ref().filter(|_| !outcome.at_once) {
            self.keep_going(goal, &errand, &mut outcome, found);
        }
        // Another writer may have ended or removed the goal in the meantime. Then nothing is posted.
        self.plans.reload().await.map_err(ToolFailure::passing)?;
        let participant = context.origin.participant().cloned();
        let (now, per_day) = (self.memory.now(), self.unasked_per_day);
        // What a person asked for in a talk is reported there, and its questions are asked there.
        let is_asked = errand.topic.is_some() || is_of_a_talk;
        let is_over_share = !is_asked
            && !outcome.is_needed
            && participant.as_ref().is_some_and(|who| self.plans.agenda().has_spoken_its_share(who, per_day, now));
        let is_wanted = !is_over_share && errand.goal.as_ref().is_none_or(|id| self.plans.agenda().is_open(id));
        // The result of a goal that serves another is for that one; a question is for people.
        let is_for_parent = errand.parent.is_some() && outcome.status != Some(GoalStatus::Blocked);
        let said = match outcome.say.trim() {
            _ if !is_wanted || is_for_parent => String::new(),
            // The requested text is posted at its time, whatever the model writes.
            "" if errand.topic.is_some() && !is_large => errand.title.clone(),
            say => say.to_owned(),
        };
        if said.is_empty() {
            if !is_for_parent {
                outcome.say.clear();
            }
        } else {
            let canvas = self.canvases.get(&self.home).ok_or_else(|| ToolFailure::passing("its chat is not open"))?;
            let topic = errand.topic.clone().or_else(|| errand.speaks_in.clone());
            let topic = topic.unwrap_or_else(|| match (&errand.goal, &errand.schedule) {
                (Some(goal), _) => topic_of_goal(goal),
                (None, schedule) => format!("schedule_{}", schedule.as_deref().unwrap_or_default()).into(),
            });
            let title = errand.title.clone();
            let turns = chat::Turns::default();
            Self::act(&canvas, chat::Op::TopicCreate { id: topic.clone(), title, turns }, origin).await?;
            let (rests_on, strangers) = (rests_on(context, &errand.title, &said), outcome.strangers.clone());
            let content = said.chars().take(chat::CONTENT_BYTES_MAX / 4).collect();
            let mut op = chat::Op::say(&topic, Self::answer_id(context), content, None);
            if let chat::Op::Append { rests_on: on, behind, supplements, .. } = &mut op {
                // The result belongs to the answer that promised it.
                let goal = errand.goal.as_ref().filter(|_| outcome.status == Some(GoalStatus::Done));
                *supplements = goal.and_then(|goal| self.promised_in(&canvas, &topic, goal));
                let names: BTreeSet<Arc<str>> = errand.behind.iter().cloned().chain(strangers).collect();
                let names = names.into_iter().filter(|who| *who != self.me.id.0).collect();
                (*on, *behind) = (rests_on, chat::bounded(names));
            }
            Self::act(&canvas, op, origin).await?;
            outcome.steps.push(format!("say: {}", cut(&said, STEP_CHARS)));
            outcome.said = Some(Self::answer_id(context));
        }
        let kept = self.plans.change(origin, "progress", |agenda, now| {
            // The plan may rest on all that the job has read, also after the notes with it are dropped.
            let strangers: Vec<Arc<str>> = outcome.strangers.iter().chain(&errand.behind).cloned().collect();
            let is_new = agenda.progress(&context.job, &outcome, &strangers, &self.me.id, now) || errand.goal.is_none();
            if is_new {
                agenda.set_own(&outcome.schedules, &self.me.id, now);
            }
            if is_large {
                agenda.pursue_scheduled(&errand, &context.job, &strangers, now);
            }
            if is_new && !said.is_empty() && !is_asked {
                agenda.spoke(now, participant.as_ref());
            }
            Ok(())
        });
        kept.await.map_err(ToolFailure::passing)?;
        self.learn_of(context, &errand, &planned, (&outcome, &said), origin).await?;
        Box::pin(self.state_result(context, &errand, (outcome.status, &said), origin)).await?;
        Ok(json!({"said": !said.is_empty()}))
    }

    /// Returns the id of the own message of a topic that answered the request for a goal.
    fn promised_in(&self, canvas: &Canvas, topic: &str, goal: &AgendaItemId) -> Option<Arc<str>> {
        let agenda = self.plans.agenda();
        let place = format!("{}/{topic}/", canvas.name());
        let requests = agenda.goals.get(goal)?.asked_in.iter().flat_map(|all| all.split(' '));
        let requests: Vec<&str> = requests.filter_map(|request| request.strip_prefix(&*place)).collect();
        let state = canvas.snapshot().state;
        let is_answer = |message: &chat::MessageView<'_>| {
            message.is_by(&self.me.id.0)
                && message.status() == MessageStatus::Final
                && message.reply_to().into_iter().chain(message.answers()).any(|id| requests.contains(&id))
        };
        chat::messages_in(&state, topic).find(is_answer).map(|message| message.id().into())
    }

    /// Sees to it that a goal does not fall silent: one whose research found nothing asks its person, and one without a next
    /// time is looked at a day later.
    fn keep_going(&self, goal: &AgendaItemId, errand: &ActErrand, outcome: &mut Outcome, found: usize) {
        let goes_on = matches!(outcome.status, None | Some(GoalStatus::Active | GoalStatus::Open));
        let is_idle = outcome.say.trim().is_empty() && outcome.again_in_minutes == 0 && outcome.subgoals.is_empty();
        let agenda = self.plans.agenda();
        let has_parts =
            agenda.goals.values().any(|other| other.parent.as_ref() == Some(goal) && !other.status.is_over());
        if !goes_on || !is_idle || has_parts || found > 0 {
            return;
        }
        match outcome.not_found.first() {
            Some(question) => {
                outcome.status = Some(GoalStatus::Blocked);
                outcome.say = match Language::of(&errand.title) {
                    Language::English => {
                        format!("I could not find out: {question} Do you know it, or shall I go on without it?")
                    }
                    Language::Chinese => format!("这一点我没有查到：{question} 您知道吗？还是不管它继续？"),
                    Language::Japanese => {
                        format!(
                            "次のことが分かりませんでした：{question} ご存じですか。それとも、これなしで進めましょうか。"
                        )
                    }
                };
            }
            None => outcome.again_in_minutes = IDLE_MINUTES,
        }
    }

    /// Stores lessons when a goal is reached, abandoned or blocked: the work as a trace, which says whether the goal
    /// was reached, and the model's lesson as a record. A failure to store them does not affect the goal.
    async fn learn_of(
        &self,
        context: &ToolContext,
        errand: &ActErrand,
        planned: &Planned,
        (outcome, said): (&Outcome, &str),
        origin: &Origin,
    ) -> Result<(), ToolFailure> {
        let agenda = self.plans.agenda();
        let goal = errand.goal.as_ref().and_then(|id| agenda.goals.get(id));
        let is_end = |goal: &&Goal| outcome.status == Some(goal.status) || goal.status == GoalStatus::Reported;
        // A goal that waits for an answer has come to no end.
        let asks = outcome.status == Some(GoalStatus::Blocked) && !outcome.say.trim().is_empty();
        let Some(goal) = goal.filter(is_end).filter(|_| !asks) else { return Ok(()) };
        let (success, result) = match goal.status {
            GoalStatus::Done | GoalStatus::Reported => (true, "it is reached"),
            GoalStatus::Blocked => (false, "it cannot go on"),
            GoalStatus::Dropped => (false, "it is given up"),
            GoalStatus::Open | GoalStatus::Active => return Ok(()),
        };
        let result = goal.notes.last().map_or(result, |note| note.text.as_str());
        let deed = GoalOutcome {
            name: context.job.to_string(),
            objective: goal.title.clone(),
            steps: traced_steps(self.plans.store(), goal).await.map_err(ToolFailure::passing)?,
            result: result.to_owned(),
            success,
            // A repetition after a crash uses the same time.
            at: goal.set_at,
            provenance: self.provenance_of(&agenda, &goal.id, context),
        };
        let kept = async {
            self.knowledge.record_outcome(&deed, &origin.cause).await?;
            if !planned.learned.trim().is_empty() {
                let (task, from) = (&goal.title, &context.job);
                self.knowledge
                    .learn(Type::Strategy, task, &planned.learned, from, &deed.provenance, &origin.cause)
                    .await?;
            }
            Ok::<_, KnowledgeError>(())
        };
        let kept = async {
            kept.await?;
            if success { self.keep_materials_of(goal, said, &origin.cause).await } else { Ok(()) }
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

    /// Keeps the code, the credentials and the cookies in the result of a goal for the person who set it.
    async fn keep_materials_of(&self, goal: &Goal, said: &str, cause: &Cause) -> Result<(), KnowledgeError> {
        // Goals are named within their lifeform.
        let reference = format!("{}/goal/{}", self.me.id.0, goal.id);
        let heard = Heard { person: &goal.by.0, message: &reference, content: said, at: goal.set_at };
        self.knowledge.keep_materials(heard, cause).await.map(drop)
    }

    /// Returns the provenance of a record about a goal. Its sources are the people whose words led to the goal, and the
    /// strangers whose words its job has read. Its audience is those people and the speakers in the topic of the goal.
    pub(super) fn provenance_of(&self, agenda: &Agenda, goal: &AgendaItemId, context: &ToolContext) -> Provenance {
        let behind = agenda.behind(&Act::Goal(goal.clone()), &self.me.id).unwrap_or_default();
        let people = behind.iter().map(|who| &**who).filter(|who| hears(who, &self.me));
        let mut provenance = Provenance::of_conversation(people);
        let uses_knowledge = Self::act_errand(context).is_ok_and(|errand| !errand.knows.is_empty());
        if provenance.audience.is_none() && uses_knowledge {
            // Nobody asked for it, and it may rest on what was said among few.
            provenance.audience = Some(BTreeSet::new());
        }
        if let Some(audience) = &mut provenance.audience {
            // A person whose note the job has read is a source, and reads nothing.
            let set_by = agenda.set_by(&Act::Goal(goal.clone()));
            audience.retain(|who| set_by.as_deref() == Some(who));
            let there = self.canvases.get(&self.home);
            let topic = agenda.goals.get(goal).map_or_else(|| topic_of_goal(goal), Goal::speaks_in);
            audience.extend(
                there.map(|home| readers_of_topic(&home.snapshot().state, &topic, &self.memory)).unwrap_or_default(),
            );
        }
        provenance.sources.extend(strangers_behind(context).iter().map(|who| who.to_string()));
        provenance
    }
}
