//! Approvals in the chat: the question with the exact call, and a decision that an approver says in words.

use std::sync::Arc;

use fascicles::run::Pause;
use fascicles::{FascicleError, PersonsDecision, Question, Waiting, approval_id};
use neurons::neuron::ToolCall;
use neurons::tools::{ArgumentOrigin, Form, names_a_secret};
use store::{Hash, Principal, Role};

use super::{LifeformState, forms};
use crate::LifeformError;
use crate::agenda::{Act, Goal};
use crate::canvas::Skill;
use crate::canvas::chat::{self, MessageView};
use crate::perception::{ActiveReply, Change, PerceivedMessage, ThreadRef, approval_asked_above, decision_in, is_word};
use crate::reminders::Language;
use crate::tools::{Canvases, called};

/// The maximum length of the calls in a question, in bytes. Longer ones are not shown, and not approved in words.
const CALLS_BYTES_MAX: usize = 2_000;
/// The maximum number of parameters whose origin a question names.
const ORIGINS_SHOWN: usize = 8;
/// The maximum number of waits of one job that are looked at.
const WAITS_MAX: u32 = 64;

/// The person who is asked about the calls of a job, and the place where this happens.
struct Asked {
    place: ThreadRef,
    /// The person whose message or goal led to the calls; empty if there is none.
    asker: Arc<str>,
    /// Words in the language of the question.
    words: String,
    source: Arc<str>,
    /// The message that the question answers.
    message: Option<Arc<str>>,
    /// The title of a topic that may not be open yet.
    title: Option<String>,
}

impl Asked {
    fn in_talk(thought: &ActiveReply) -> Self {
        let said = thought.perception.last();
        Self {
            place: thought.perception.place.clone(),
            asker: said.sender.clone(),
            words: said.content.clone(),
            source: said.source.clone(),
            message: Some(said.message.clone()),
            title: None,
        }
    }
}

impl LifeformState {
    /// Takes notice of the waits of a job: asks about each open one, once, or goes on if there is none.
    pub(crate) async fn say_that_it_waits(&mut self, job: &Arc<str>) -> Result<(), LifeformError> {
        let Ok(head) = self.fascicles.job(job).await else { return Ok(()) };
        let changed = match head.waits.is_empty() {
            true => self.waits.remove(job),
            false => self.waits.insert(job.clone()),
        };
        // The time in which a job waits for people is not time in which it is stuck.
        let now = self.store.clock().now();
        if let Some((_, since)) = self.jobs.get_mut(job).filter(|_| changed) {
            *since = now;
        }
        self.attention.rest(job, !head.waits.is_empty());
        let thought = self.attention.thought_by(job).filter(|thought| thought.perception.to_answer());
        let Some(asked) = thought.map(Asked::in_talk).or_else(|| self.asked_for_goal(job)) else { return Ok(()) };
        for waiting in &head.waits {
            let id = approval_id(job, waiting.wait.n);
            let Ok(approval) = self.fascicles.approval(&head.origin.principal, &id).await else { continue };
            let content = self.question(&asked, &approval.question, &id);
            self.open_topic(&asked).await?;
            let (place, source) = (&asked.place, asked.source.clone());
            self.post_by_reflex(place, source, &name_of(&id), content, asked.message.clone()).await?;
        }
        Ok(())
    }

    /// Returns the place where a job that pursues a goal asks, and the person who set the goal.
    fn asked_for_goal(&self, job: &Arc<str>) -> Option<Asked> {
        let agenda = self.plans.agenda();
        let goal = agenda.goals.values().find(|goal| goal.job.as_ref() == Some(job))?;
        let asker = agenda.set_by(&Act::Goal(goal.id.clone())).unwrap_or_default();
        let place = ThreadRef { canvas: self.home().into(), topic: goal.speaks_in() };
        let (words, source) = (goal.title.clone(), format!("job:{job}").into());
        Some(Asked { place, asker, words, source, message: None, title: Some(goal.title.clone()) })
    }

    /// Opens the topic of a goal that has not spoken yet.
    async fn open_topic(&self, asked: &Asked) -> Result<(), LifeformError> {
        let (Some(title), Some(canvas)) = (&asked.title, self.canvases.get(&asked.place.canvas)) else { return Ok(()) };
        let (id, title) = (asked.place.topic.clone(), title.clone());
        let open = chat::Op::TopicCreate { id, title, turns: chat::Turns::default() };
        match canvas.apply(open, None, None, &self.because(asked.source.clone())).await {
            Ok(_) | Err(LifeformError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the text of a question. The calls stand in it, whole, only if the person who asked decides them here: arguments may
    /// hold what others said.
    fn question(&self, asked: &Asked, question: &Question, id: &str) -> String {
        let language = Language::of(&asked.words);
        let canvas = self.canvases.get(&asked.place.canvas);
        let is_chat = canvas.is_some_and(|canvas| canvas.kind.rules().skill() == Skill::Reply);
        // A token of lesser rights writes in the same name, so only what all of them have counts.
        let is_operator = self.fascicles.neurons().least_principal(&asked.asker).may(Role::Operator);
        let Question::Calls(calls) = question else { return of_an_operator(language).to_owned() };
        let form = form_of(calls);
        let is_unsure = calls.iter().any(|call| call.unsure);
        let is_operators = is_unsure || calls.iter().any(names_a_secret);
        let decides_here = asked.asker.starts_with("user:")
            && is_chat
            && (is_operator || (self.trusts(&asked.asker) && !is_operators));
        if !decides_here {
            return match (is_unsure, form) {
                (true, _) => doubt(language),
                (false, Some(_)) => forms::asks_an_operator(language),
                (false, None) => of_an_operator(language),
            }
            .to_owned();
        }
        if let Some(form) = form {
            return forms::question(language, form);
        }
        let shown: Vec<String> = calls.iter().map(|call| written(call, is_unsure)).collect();
        let shown = shown.join("\n\n");
        match shown.len() > CALLS_BYTES_MAX {
            true => too_long(language, id),
            false if is_unsure => format!("{}\n\n{shown}", doubt(language)),
            false => {
                let asker = name_of_asker(asked, &self.canvases);
                format!("{}\n\n{shown}{}", shall_i(language, calls.len()), not_asked(language, calls, &asker))
            }
        }
    }

    /// Takes a message as the decision about calls that wait, if it consists of one, and the question is right above it or it is a
    /// reply to the question. Returns `true` if the message needs nothing else.
    pub(super) async fn hear_decision(
        &mut self,
        place: &ThreadRef,
        said: &PerceivedMessage,
    ) -> Result<bool, LifeformError> {
        let (plain, unsure) = (decision_in(&said.content, false), decision_in(&said.content, true));
        let (decides, jobs) = (plain.or(unsure).is_some(), self.jobs_that_ask(place));
        // The answers to a form are any words.
        let mut is_heard = decides;
        for job in jobs.iter().filter(|_| !decides) {
            is_heard |= self.fascicles.job(job).await.is_ok_and(|head| !head.waits.is_empty());
        }
        let taken = self.reflex_id(&place.topic, &format!("answered_{}", said.rev));
        let canvas = self.canvases.get(&place.canvas).map(|canvas| canvas.snapshot().state);
        if canvas.is_some_and(|state| chat::message_in(&state, &place.topic, &taken).is_some()) {
            // After a restart it is read again.
            return Ok(true);
        }
        if said.change != Change::New || !said.sender.starts_with("user:") || !is_heard {
            return Ok(false);
        }
        let Some(canvas) = self.canvases.get(&place.canvas) else { return Ok(false) };
        let state = canvas.snapshot().state;
        // Between a form and its answer, other messages may stand: only the words of the one who asked, or a reply, are an answer.
        let may_stand = |other: &MessageView<'_>| !decides || is_word(other.content());
        let asked = approval_asked_above(&state, &place.topic, &said.message, &self.head.id, may_stand);
        let Some(asked) = asked else { return Ok(false) };
        // Once the answer is there, a word that was taken is read again after a restart, and is still no request.
        if jobs.is_empty() {
            return Ok(decides && self.may_decide(&said.sender));
        }
        let is_asked_by =
            |(job, n): &(Arc<str>, u32)| self.reflex_id(&place.topic, &name_of(&approval_id(job, *n))) == asked;
        let waits = jobs.iter().flat_map(|job| (1..=WAITS_MAX).map(move |n| (job.clone(), n)));
        let Some((job, n)) = { waits }.find(is_asked_by) else { return Ok(false) };
        let Ok(head) = self.fascicles.job(&job).await else { return Ok(false) };
        if head.waits.iter().all(|waiting| waiting.wait.n != n) {
            return Ok(decides && self.may_decide(&said.sender));
        }
        let (who, id) = (self.fascicles.neurons().least_principal(&said.sender), approval_id(&job, n));
        let calls = match self.fascicles.approval(&who, &id).await.map(|approval| approval.question) {
            Ok(Question::Calls(calls)) => calls,
            _ if !decides => return Ok(false),
            // The person who asked withdraws it by a no, as by other words.
            _ if plain == Some(PersonsDecision::Refuse) => return Ok(false),
            _ => return self.hint(place, said, of_an_operator(Language::of(&said.content))).await,
        };
        let posted = chat::message_in(&state, &place.topic, &asked).map(MessageView::content).unwrap_or_default();
        if let Some(form) = form_of(&calls) {
            let language = Language::of(&said.content);
            if !posted.contains(&in_code(&form.message)) {
                return self.hint(place, said, forms::asks_an_operator(language)).await;
            }
            // Where several people speak, the words of the one who asked are the answer; others reply to the question.
            let own = chat::message_in(&state, &place.topic, &said.message);
            if !decides && !self.is_asker(place, &job, &said.sender) && own.is_none_or(|own| own.reply_to().is_none()) {
                return Ok(false);
            }
            return match forms::heard(form, &said.content) {
                Ok((decision, answers)) => {
                    let (words, name) = (forms::passed_on(language, form), format!("answered_{}", said.rev));
                    let is_taken = self.take_decision((&job, &id), &who, (decision, answers)).await?;
                    if is_taken {
                        self.say_by_reflex(place, said, &name, words, None).await?;
                    }
                    Ok(is_taken)
                }
                Err(fault) => self.hint(place, said, &forms::again(language, form, &fault)).await,
            };
        }
        let is_unsure = calls.iter().any(|call| call.unsure);
        let decision = match (is_unsure, plain, unsure) {
            (false, Some(decision), _) | (true, _, Some(decision)) => decision,
            (true, Some(_), None) => return self.hint(place, said, doubt(Language::of(&said.content))).await,
            _ => return Ok(false),
        };
        // What is approved in words stands in the question.
        let is_shown = calls.iter().all(|call| posted.contains(&written(call, is_unsure)));
        if decision != PersonsDecision::Refuse && !is_shown {
            return self.hint(place, said, of_an_operator(Language::of(&said.content))).await;
        }
        self.take_decision((&job, &id), &who, (decision, None)).await
    }

    /// Returns `true` if the call of a job was led to by a message or a goal of `who`.
    fn is_asker(&self, place: &ThreadRef, job: &Arc<str>, who: &str) -> bool {
        let asks = |thought: &ActiveReply| thought.perception.said.iter().any(|known| *known.sender == *who);
        let agenda = self.plans.agenda();
        let of_goal = agenda.goals.values().find(|goal| goal.job.as_ref() == Some(job));
        self.attention.thought(place).is_some_and(asks)
            || of_goal.is_some_and(|goal| agenda.set_by(&Act::Goal(goal.id.clone())).is_some_and(|by| *by == *who))
    }

    /// Decides what waits, and lets the job go on. Returns `false` if `who` may not decide it.
    async fn take_decision(
        &mut self,
        (job, id): (&Arc<str>, &str),
        who: &Principal,
        (decision, comment): (PersonsDecision, Option<String>),
    ) -> Result<bool, LifeformError> {
        match self.fascicles.decide_approval(who, id, decision, comment).await {
            Ok(_) => {
                if let (true, Some((_, since))) = (self.waits.remove(job), self.jobs.get_mut(job)) {
                    *since = self.store.clock().now();
                }
                self.attention.rest(job, false);
                Ok(true)
            }
            // Who may not decide speaks like any other person.
            Err(FascicleError::NotApprover | FascicleError::NoWait | FascicleError::JobNotFound(_)) => Ok(false),
            Err(error) => {
                tracing::warn!(lifeform = %self.head.id, %job, %error, "a decision is not taken");
                Ok(false)
            }
        }
    }

    /// Returns the jobs that may ask in a place: the one that answers there, and those whose goals speak there.
    fn jobs_that_ask(&self, place: &ThreadRef) -> Vec<Arc<str>> {
        let answers = self.attention.thought(place).map(|thought| thought.job.clone());
        let agenda = self.plans.agenda();
        let speaks_here = |goal: &&Goal| *place.canvas == *self.home() && goal.speaks_in() == place.topic;
        let of_goals = agenda.goals.values().filter(speaks_here).filter_map(|goal| goal.job.clone());
        answers.into_iter().chain(of_goals).collect()
    }

    /// Answers a word that decides nothing, of a person who asked or who may decide elsewhere. Others speak among themselves.
    async fn hint(&self, place: &ThreadRef, said: &PerceivedMessage, content: &str) -> Result<bool, LifeformError> {
        let asks = |thought: &ActiveReply| thought.perception.said.iter().any(|known| known.sender == said.sender);
        let agenda = self.plans.agenda();
        let is_of_asker = |goal: &Goal| {
            goal.job.as_ref().is_some_and(|job| self.waits.contains(job))
                && goal.speaks_in() == place.topic
                && agenda.set_by(&Act::Goal(goal.id.clone())).as_ref() == Some(&said.sender)
        };
        let asked = self.attention.thought(place).is_some_and(asks) || agenda.goals.values().any(is_of_asker);
        if !asked && !self.may_decide(&said.sender) {
            return Ok(false);
        }
        self.say_by_reflex(place, said, &format!("doubt_{}", said.rev), content.to_owned(), None).await?;
        Ok(true)
    }

    /// Returns `true` if a principal may decide about some call.
    pub(super) fn may_decide(&self, who: &str) -> bool {
        who.starts_with("user:") && (self.trusts(who) || self.participant(who).is_none())
    }
}

/// Returns the form that a server asks to go on with a call.
fn form_of(calls: &[ToolCall]) -> Option<&Form> {
    calls.iter().find_map(|call| call.form.as_deref())
}

/// Returns `true` if a job waits for a word about a call that was begun: its outcome is unknown, or its server asks a person.
pub(super) fn waits_unsure(waits: &[Waiting]) -> bool {
    waits.iter().any(|waiting| match &waiting.wait.pause {
        Pause::Tools { tool_calls } => tool_calls.iter().any(|call| call.unsure || call.form.is_some()),
        Pause::Approval { .. } | Pause::Event { .. } => false,
    })
}

/// Returns the name of the question about an approval.
fn name_of(approval: &str) -> String {
    format!("approval_{}", &Hash::of(approval.as_bytes()).hex()[..12])
}

/// Returns a call as people read it: the tool, and exactly what is sent. The reason why it waits is the daemon's own; of an unknown
/// outcome it would be the server's.
fn written(call: &ToolCall, is_unsure: bool) -> String {
    let why = call.why.as_ref().filter(|_| !is_unsure).map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{}{why}", in_code(&format!("{} {}", call.name, call.params)))
}

/// Returns a text as code in Markdown.
pub(crate) fn in_code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let room = if longest > 0 { " " } else { "" };
    format!("{fence}{room}{text}{room}{fence}")
}

/// Returns the name of the person who is asked, as prompts have it.
fn name_of_asker(asked: &Asked, canvases: &Canvases) -> String {
    canvases.get(&asked.place.canvas).map(|canvas| called(&canvas.snapshot().state, &asked.asker)).unwrap_or_default()
}

/// Returns the parameters that the person did not say, each with its origin; an empty text if there are none.
fn not_asked(language: Language, calls: &[ToolCall], asker: &str) -> String {
    let origin = |origin: &ArgumentOrigin| match (origin, language) {
        (ArgumentOrigin::Asked, _) => None,
        (ArgumentOrigin::Said(name), _) if name == asker => None,
        (ArgumentOrigin::Said(name), Language::English) => Some(format!("said by {}", in_code(name))),
        (ArgumentOrigin::Said(name), Language::Chinese) => Some(format!("{} 说的", in_code(name))),
        (ArgumentOrigin::Said(name), Language::Japanese) => Some(format!("{} の言葉", in_code(name))),
        (ArgumentOrigin::Result(tool), Language::English) => Some(format!("from {}", in_code(tool))),
        (ArgumentOrigin::Result(tool), Language::Chinese) => Some(format!("来自 {}", in_code(tool))),
        (ArgumentOrigin::Result(tool), Language::Japanese) => Some(format!("{} の結果", in_code(tool))),
        (ArgumentOrigin::Step, Language::English) => Some("found by an earlier step".to_owned()),
        (ArgumentOrigin::Step, Language::Chinese) => Some("来自之前的步骤".to_owned()),
        (ArgumentOrigin::Step, Language::Japanese) => Some("前の手順の結果".to_owned()),
        (ArgumentOrigin::Memory, Language::English) => Some("from my memory".to_owned()),
        (ArgumentOrigin::Memory, Language::Chinese) => Some("来自我的记忆".to_owned()),
        (ArgumentOrigin::Memory, Language::Japanese) => Some("私の記憶".to_owned()),
        (ArgumentOrigin::Plan | ArgumentOrigin::Made, Language::English) => Some("my own words".to_owned()),
        (ArgumentOrigin::Plan | ArgumentOrigin::Made, Language::Chinese) => Some("我自己写的".to_owned()),
        (ArgumentOrigin::Plan | ArgumentOrigin::Made, Language::Japanese) => Some("私の言葉".to_owned()),
    };
    let named = |(place, of): (&String, &ArgumentOrigin)| {
        origin(of).map(|origin| format!("{} ({origin})", in_code(place.trim_start_matches('/'))))
    };
    let named: Vec<String> =
        calls.iter().flat_map(|call| call.origins.iter().filter_map(named)).take(ORIGINS_SHOWN).collect();
    let words = match language {
        _ if named.is_empty() => return String::new(),
        Language::English => "Not in your words",
        Language::Chinese => "不是您说的",
        Language::Japanese => "あなたの言葉にないもの",
    };
    format!("\n\n{words}: {}", named.join(", "))
}

fn shall_i(language: Language, calls: usize) -> &'static str {
    match (language, calls) {
        (Language::English, ..=1) => "This call would change something outside. Shall I make it? Yes or no:",
        (Language::English, _) => "These calls would change something outside. Shall I make all of them? Yes or no:",
        (Language::Chinese, _) => "这会改动外面的东西。要做吗？请回答“好的”或“不要”：",
        (Language::Japanese, _) => "これは外部に変更を加えます。実行しますか。「はい」か「いいえ」で答えてください：",
    }
}

fn too_long(language: Language, id: &str) -> String {
    match language {
        Language::English => format!(
            "What I would do changes something outside, and is too long to show here. It waits for an approval: {id}"
        ),
        Language::Chinese => format!("我要做的事会改动外面的东西，太长，这里显示不下。等待批准：{id}"),
        Language::Japanese => format!("外部に変更を加えますが、長すぎてここに示せません。承認を待ちます：{id}"),
    }
}

fn of_an_operator(language: Language) -> &'static str {
    match language {
        Language::English => "What you ask for would change something outside, so it waits for an operator's approval.",
        Language::Chinese => "您要我做的事会改动外面的东西，所以要等管理员批准。",
        Language::Japanese => "ご依頼は外部に変更を加えるため、管理者の承認を待ちます。",
    }
}

fn doubt(language: Language) -> &'static str {
    match language {
        Language::English => {
            "I do not know whether what you asked for was done: the answer got lost. I do not do it again before an operator has \
             said so: \"it was done\", \"it was not done\" or \"leave it\"."
        }
        Language::Chinese => {
            "您要我做的事是否已经做成，我不知道：回音丢了。管理员说明之前我不会再做一次：“做成了”、“没有做成”或“算了”。"
        }
        Language::Japanese => {
            "ご依頼の件が行われたかどうか分かりません。返事が失われました。管理者の判断があるまで、もう一度は行いません：\
             「行われました」「行われていません」「そのまま」。"
        }
    }
}
