//! The rules of perception: which change of a canvas a lifeform answers, heeds or passes over. The rules are data: the
//! neurons of the fascicle that its definition names, by default `config/fascicles/perceive.toml`. They need no model, no
//! token and no job.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use fascicles::{Decider, FascicleError, FascicleId, Fascicles};
use neurons::kinds::decide::Facts;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Entry;

use super::{CanvasEvent, Change, Me, PerceivedMessage, Stimulus};
use crate::canvas::{Kind, Op, State};
use crate::metabolism::Mode;
use crate::spec::PERCEIVE;

/// The members that rules may read.
const FACTS: [&str; 32] = [
    "canvas",
    "canvas_kind",
    "is_home",
    "op",
    "by",
    "person",
    "change",
    "title",
    "turns",
    "role",
    "stance",
    "is_host",
    "sender",
    "from_lifeform",
    "is_own",
    "is_meeting_post",
    "is_of_meeting",
    "is_called",
    "calls_another",
    "calls_person",
    "answers_own",
    "is_on_own",
    "is_answered",
    "is_echo",
    "is_urgent",
    "only_reminders",
    "asks",
    "sign",
    "chars",
    "attachments",
    "mode",
    "hour",
];

/// A change on its way to the rules.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'s> {
    /// The lifeform that meets the change.
    pub(crate) me: Me<'s>,
    /// The canvas, as `{lifeform}/{canvas}`.
    pub(crate) canvas: &'s str,
    /// The journal entry.
    pub(crate) entry: &'s Entry,
    /// The state after the change.
    pub(crate) state: &'s State,
    /// The sort of the principal who made the change: `operator`, `participant`, `lifeform` or `system`.
    pub(crate) by: &'static str,
    /// The metabolic mode of the lifeform.
    pub(crate) mode: Mode,
    /// The hour of the day where the lifeform lives.
    pub(crate) hour: i8,
}

/// The destination of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Route {
    /// Nothing happens.
    Pass,
    /// The lifeform takes note of the change.
    Heed,
    /// The lifeform answers.
    Reply,
    /// The lifeform ends the message that it is writing.
    Interrupt,
    /// The reaction is a verdict on a message of the lifeform.
    Verdict,
}

/// The result of the rules.
#[derive(Debug, Deserialize)]
struct Routed {
    to: Route,
    #[serde(default)]
    fascicle: Option<FascicleId>,
    #[serde(default)]
    rule: Arc<str>,
}

/// The meaning of a change.
pub(crate) struct Heard {
    /// The event; `None` if the change is passed over.
    pub(crate) event: Option<CanvasEvent>,
    /// The rule that decided.
    pub(crate) rule: Arc<str>,
}

/// The facts of a change, of which each is computed when a rule asks for it.
struct Read<'s> {
    incoming: Incoming<'s>,
    kind: &'s Kind,
    stimulus: &'s dyn Stimulus,
}

impl Facts for Read<'_> {
    fn fact(&self, member: &str) -> Option<Cow<'_, Value>> {
        let Incoming { me, canvas, entry, by, mode, hour, .. } = self.incoming;
        let value = match member {
            "canvas" => json!(canvas),
            "canvas_kind" => json!(self.kind.name()),
            "is_home" => json!(*me.id.0 == format!("lifeform:{}", me.home_of)),
            "op" => json!(entry.kind),
            "by" => json!(by),
            "person" => json!(entry.by),
            "mode" => json!(mode),
            "hour" => json!(hour),
            _ => self.stimulus.fact(member),
        };
        Some(value).filter(|value| !value.is_null()).map(Cow::Owned)
    }
}

/// The rules of a lifeform, checked once per version of their fascicle.
#[derive(Default)]
pub(crate) struct Rules {
    known: Option<(Decider, Result<(), String>)>,
}

impl Rules {
    /// Returns the rules of a fascicle, and `None`. If they do not decide on every change, returns the shipped ones, and the
    /// fault.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn of(
        &mut self,
        fascicles: &Fascicles,
        id: &FascicleId,
    ) -> Result<(Decider, Option<String>), FascicleError> {
        let fault = match fascicles.decider(id).await {
            Ok(rules) => {
                let known = self.known.take().filter(|(known, _)| known.is_same(&rules));
                let (rules, checked) = known.unwrap_or_else(|| {
                    let checked = check_rules(id, &rules);
                    (rules, checked)
                });
                self.known = Some((rules.clone(), checked.clone()));
                match checked {
                    Ok(()) => return Ok((rules, None)),
                    Err(fault) => fault,
                }
            }
            Err(error @ (FascicleError::NotFound(_) | FascicleError::Invalid(_))) => error.to_string(),
            Err(error) => return Err(error),
        };
        Ok((fascicles.decider(&PERCEIVE.into()).await?, Some(fault)))
    }
}

/// Checks the rules of a fascicle.
///
/// # Errors
/// A message that names the fault.
pub(crate) async fn check(fascicles: &Fascicles, id: &FascicleId) -> Result<(), String> {
    let rules = fascicles.decider(id).await.map_err(|error| format!("perceive: {error}"))?;
    check_rules(id, &rules).map_err(|why| format!("perceive: {why}"))?;
    for named in rules.rules().flat_map(|(_, rules)| rules).filter_map(|rule| rule.then.get("fascicle")?.as_str()) {
        fascicles.get(&named.into()).await.map_err(|error| format!("perceive: {id}: {error}"))?;
    }
    Ok(())
}

fn check_rules(id: &FascicleId, rules: &Decider) -> Result<(), String> {
    let set = rules.rules().flat_map(|(_, rules)| rules).flat_map(|rule| rule.then.keys());
    let known: BTreeSet<&str> = FACTS.into_iter().chain(set.map(String::as_str)).collect();
    let mut decides = false;
    for rule in rules.rules().flat_map(|(_, rules)| rules) {
        let fault = |why: String| Err(format!("{id}: the rule \"{}\" {why}", rule.name));
        if let Some(other) = rule.when.keys().find(|member| !known.contains(member.as_str())) {
            return fault(format!("reads \"{other}\", which is none of {}", FACTS.join(", ")));
        }
        let to = rule.then.get("to").map(|to| serde_json::from_value::<Route>(to.clone()));
        if let Some(Err(error)) = &to {
            return fault(format!("sets to: {error}"));
        }
        if rule.then.get("fascicle").is_some_and(|fascicle| !fascicle.is_string()) {
            return fault("sets fascicle, which is the id of a fascicle".into());
        }
        decides |= to.is_some() && rule.when.is_empty();
    }
    match decides {
        true => Ok(()),
        false => Err(format!("{id} does not decide on every change: its last rule has no conditions, and sets to")),
    }
}

/// Returns the meaning of a change that another principal made on a canvas of `kind`; `None` for a change by the lifeform
/// itself, and for one that concerns no topic.
pub(crate) fn perceive(rules: &Decider, kind: &Kind, incoming: Incoming<'_>, op: Op) -> Option<Heard> {
    let Incoming { me, entry, .. } = incoming;
    if entry.by == *me.id {
        return None;
    }
    let stimulus = kind.rules().stimulus(&incoming, op)?;
    let decided = rules.decide(&Read { incoming, kind, stimulus: &*stimulus });
    let routed = serde_json::from_value::<Routed>(Value::Object(decided.members));
    let Ok(Routed { to, fascicle, rule }) = routed else {
        return Some(Heard { event: None, rule: "no rule applies".into() });
    };
    let is = |member: &str| stimulus.fact(member) == Value::Bool(true);
    let sign = stimulus.fact("sign");
    let event = match to {
        Route::Pass => None,
        Route::Verdict if is("is_own") && sign.is_string() => {
            stimulus.target().map(|(topic, message)| CanvasEvent::Judged(topic, message, sign == "helped"))
        }
        Route::Interrupt if is("is_own") => {
            stimulus.target().map(|(topic, message)| CanvasEvent::BrokenOff(topic, message))
        }
        // Other rules cannot make a verdict or an end of what is none.
        Route::Verdict | Route::Interrupt => None,
        Route::Heed | Route::Reply => {
            // Whatever the rules say, lifeforms do not answer each other forever, and what is retracted is not answered.
            let ends = || (is("from_lifeform") && is("is_echo")) || stimulus.fact("change") == Change::Retracted.name();
            let to_answer = to == Route::Reply && !ends();
            let (place, said) = stimulus.message(to_answer);
            let said = PerceivedMessage { to_answer, fascicle, rule: Some(rule.clone()), ..said };
            Some(CanvasEvent::PerceivedMessage(place, Box::new(said)))
        }
    };
    Some(Heard { event, rule })
}
