//! The changes of a plan that a model wants: they are taken whole or refused with a place, and what a person approved holds on only for
//! the same calls.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use neurons::tools::rename_texts;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{OPEN_MAX, PlanStep, StepId, StepStatus, TOOLS_MAX, TRIES_MAX, bounded};
use crate::agenda::checks::check_line;

/// A step as a model plans it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PlannedStep {
    /// The id of a known step, or a label for a new one.
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) after: Vec<String>,
    pub(crate) tools: Vec<String>,
    /// The arguments of a call that changes something, as far as they are known, as JSON text.
    pub(crate) with: String,
    /// The arguments of that call that steps before it find.
    pub(crate) takes: Vec<PlannedArgument>,
}

impl PlannedStep {
    /// Returns `true` if the step names no call. A known step then keeps its own.
    fn is_without_call(&self) -> bool {
        self.with.trim().is_empty() && self.takes.is_empty()
    }
}

/// An argument that a step before finds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PlannedArgument {
    pub(crate) argument: String,
    /// The step that finds it, as in `after`.
    pub(crate) from: String,
}

impl PlanStep {
    /// Returns `true` if a step that a model wants is this one: it has the same work, and its effects may be those of this one.
    fn is_meant_by(&self, wanted: &PlannedStep, plan: &[Self]) -> bool {
        let is_open = self.status == StepStatus::Todo || (self.status == StepStatus::Failed && self.tries > 0);
        let same_tools = self.tools.iter().map(|tool| &**tool).eq(wanted.tools.iter().map(String::as_str));
        let with = serde_json::from_str(&wanted.with).ok();
        let takes: BTreeMap<String, StepId> =
            wanted.takes.iter().map(|taken| (taken.argument.clone(), taken.from.as_str().into())).collect();
        let with = with.or_else(|| (!takes.is_empty()).then(Map::new));
        let new = Self { with, takes, ..Self::default() };
        let same_call = wanted.is_without_call() || self.has_call_of(&new) || self.is_completed_by(&new, plan);
        is_open && self.what == wanted.what && same_tools && (self.tries == 0 || same_call)
    }

    /// Returns `true` if another step has the same call.
    fn has_call_of(&self, new: &Self) -> bool {
        self.with == new.with && self.takes == new.takes
    }

    /// Returns `true` if another step has the same call, and names the arguments that steps before have found in the meantime.
    fn is_completed_by(&self, new: &Self, plan: &[Self]) -> bool {
        let Some(with) = new.with.as_ref().filter(|_| !self.takes.is_empty() && new.takes.is_empty()) else {
            return false;
        };
        let is_found = |(argument, from): (&String, &StepId)| {
            let found = plan.iter().find(|step| step.id == *from).and_then(|step| step.found_for(argument));
            found.is_some() && with.get(argument) == found
        };
        let known = with.clone().into_iter().filter(|(name, _)| !self.takes.contains_key(name)).collect::<Map<_, _>>();
        self.takes.iter().all(is_found) && Some(known) == self.with
    }
}

/// Returns the plan with the steps that a model wants to be left, in its order. Steps that are done stay; open ones that it
/// does not name are skipped. `tools` are the names of the given tools, and `made` is the number of ids that were given out. `trusts`
/// says that nobody else's words had been read when the plan was made.
///
/// # Errors
/// A sentence with the place and the fault; the plan is then as it was.
pub(crate) fn revised(
    plan: &[PlanStep],
    wanted: &[PlannedStep],
    (tools, trusts): (&BTreeSet<Arc<str>>, bool),
    made: &mut u32,
    now: Timestamp,
) -> Result<Vec<PlanStep>, String> {
    if wanted.len() > OPEN_MAX {
        return Err(format!("steps: {} of them, the bound is {OPEN_MAX}", wanted.len()));
    }
    let (mut ids, mut given_out) = (BTreeMap::<&str, StepId>::new(), *made);
    let mut open = Vec::new();
    for (place, step) in wanted.iter().enumerate() {
        let at = |why: String| format!("steps[{place}]: {why}");
        check_line("what", &step.what).map_err(|_| at("what is 1 to 200 characters on one line".into()))?;
        let known = plan.iter().find(|known| *known.id == *step.id && !step.id.is_empty());
        match known {
            Some(done) if done.status == StepStatus::Done && done.what == step.what => continue,
            Some(done) if done.status == StepStatus::Done => {
                return Err(at(format!("{} is done and stays as it is; leave it out", done.id)));
            }
            _ => {}
        }
        // An id is never another step's.
        let known = known.filter(|known| known.is_meant_by(step, plan));
        let id = known.map_or_else(
            || {
                given_out += 1;
                StepId::from(format!("s{given_out}"))
            },
            |known| known.id.clone(),
        );
        if !step.id.is_empty() && ids.insert(&step.id, id.clone()).is_some() {
            return Err(at(format!("two steps have the id {}", step.id)));
        }
        open.push((place, id, known, step));
    }
    let mut next = Vec::new();
    for (place, id, known, step) in open {
        let at = |why: String| format!("steps[{place}]: {why}");
        if step.tools.len() > TOOLS_MAX {
            return Err(at(format!("tools: {} of them, the bound is {TOOLS_MAX}", step.tools.len())));
        }
        if let Some(unknown) = step.tools.iter().find(|name| !tools.contains(name.as_str())) {
            return Err(at(format!("there is no tool {unknown}; use names from <tools>")));
        }
        let id_of = |label: &str| {
            let stands = |known: &&PlanStep| *known.id == *label && known.status == StepStatus::Done;
            ids.get(label).cloned().or_else(|| plan.iter().find(stands).map(|step| step.id.clone()))
        };
        let known_id = |label: &String| {
            id_of(label).ok_or_else(|| format!("after: {label} is neither among these steps nor done"))
        };
        let mut after = step.after.iter().map(known_id).collect::<Result<Vec<_>, _>>().map_err(at)?;
        let mut with = match step.with.trim() {
            "" if step.takes.is_empty() => None,
            "" => Some(Map::new()),
            text => {
                let given = serde_json::from_str::<Map<String, Value>>(text);
                Some(given.map_err(|error| at(format!("with is a JSON object as text: {error}")))?)
            }
        };
        let mut takes = BTreeMap::new();
        if let Some(known) = known.filter(|_| step.is_without_call()) {
            (with, takes) = (known.with.clone(), known.takes.clone());
            for from in takes.values() {
                if !after.contains(from) {
                    after.push(from.clone());
                }
            }
        }
        // A text that is passed on is that of a step before.
        let mut text_of = |label: &str| {
            let from = id_of(label).ok_or_else(|| format!("with: {label} is neither among these steps nor done"))?;
            if !after.contains(&from) {
                after.push(from.clone());
            }
            Ok(from.to_string())
        };
        for value in with.iter_mut().flat_map(Map::values_mut) {
            rename_texts(value, &mut text_of).map_err(at)?;
        }
        for PlannedArgument { argument, from } in &step.takes {
            let unknown = || at(format!("takes: {from} is neither among these steps nor done"));
            let from = id_of(from).ok_or_else(unknown)?;
            if with.as_ref().is_some_and(|with| with.contains_key(argument)) {
                return Err(at(format!("takes: {argument} stands in with, too")));
            }
            if !after.contains(&from) {
                after.push(from.clone());
            }
            if takes.insert(argument.clone(), from).is_some() {
                return Err(at(format!("takes: {argument} twice")));
            }
        }
        // What is found already stands in the call, where a person sees it.
        let done = |from: &StepId| plan.iter().find(|step| step.id == *from && step.status == StepStatus::Done);
        for (argument, from) in takes.clone() {
            let Some(done) = done(&from) else { continue };
            let missing = || at(format!("takes: {from} is done and found no value named {argument}; name it in with"));
            let value = done.found_for(&argument).ok_or_else(missing)?.clone();
            with.get_or_insert_default().insert(argument.clone(), value);
            takes.remove(&argument);
        }
        let tools: Vec<Arc<str>> = step.tools.iter().map(|name| name.as_str().into()).collect();
        let what = step.what.clone();
        let mut new =
            PlanStep { id, what, after, tools, with, takes, trusted: trusts, at: Some(now), ..PlanStep::default() };
        let completes = known.is_some_and(|known| known.is_completed_by(&new, plan));
        if let Some(known) = known.filter(|known| completes || known.has_call_of(&new)) {
            new.trusted = trusts && known.trusted && !completes;
            new.pin.clone_from(&known.pin);
            (new.tries, new.why, new.grant) = (known.tries, known.why.clone(), known.grant.clone());
            (new.job, new.effects, new.at) = (known.job.clone(), known.effects.clone(), known.at);
            // What was approved with open arguments holds for the very values that were found.
            if let (true, Some(grant), Some(with)) = (completes, &mut new.grant, &new.with) {
                (grant.arguments, grant.takes) = (with.clone(), BTreeMap::new());
            }
            if new.tries >= TRIES_MAX {
                let why = new.why.unwrap_or_default();
                return Err(at(format!(
                    "{} has failed {TRIES_MAX} times ({why}); do it in another way, or ask",
                    new.id
                )));
            }
        }
        next.push(new);
    }
    if let Some(stuck) = cyclic(&next) {
        return Err(format!("steps: \"{stuck}\" comes after itself"));
    }
    drop_grants_of_changed_finders(&mut next, plan);
    *made = given_out;
    let stays = |known: &&PlanStep| !known.id.is_empty() && next.iter().all(|step| step.id != known.id);
    let mut before: Vec<PlanStep> = plan.iter().filter(stays).cloned().collect();
    for gone in before.iter_mut().filter(|step| !step.is_over()) {
        (gone.status, gone.at) = (StepStatus::Skipped, Some(now));
    }
    before.extend(next);
    Ok(bounded(before))
}

/// Removes the approvals that take an argument from a step which is another one than the person was shown, or reads others.
fn drop_grants_of_changed_finders(next: &mut [PlanStep], before: &[PlanStep]) {
    fn is_as_before(id: &StepId, next: &[PlanStep], before: &[PlanStep]) -> bool {
        let of = |plan: &[PlanStep]| {
            let step = plan.iter().find(|step| step.id == *id)?;
            Some((step.what.clone(), step.tools.clone(), step.with.clone(), step.takes.clone(), step.after.clone()))
        };
        // A step that is done is not in the next plan, and stays as it was.
        let Some(step) = of(next) else { return true };
        of(before).as_ref() == Some(&step) && step.4.iter().all(|before_it| is_as_before(before_it, next, before))
    }
    let changed = |step: &PlanStep| {
        let mut takes = step.grant.iter().flat_map(|grant| grant.takes.values());
        takes.any(|from| !is_as_before(from, next, before))
    };
    let changed: Vec<StepId> = next.iter().filter(|step| changed(step)).map(|step| step.id.clone()).collect();
    next.iter_mut().filter(|step| changed.contains(&step.id)).for_each(|step| step.grant = None);
}

/// Returns a step that waits for itself, if there is one.
fn cyclic(steps: &[PlanStep]) -> Option<&str> {
    let mut left: Vec<&PlanStep> = steps.iter().collect();
    loop {
        let waits = |step: &PlanStep| step.after.iter().any(|before| left.iter().any(|other| other.id == *before));
        let rest: Vec<&PlanStep> = left.iter().copied().filter(|step| waits(step)).collect();
        match rest.len() {
            0 => return None,
            n if n == left.len() => return rest.first().map(|step| &*step.what),
            _ => left = rest,
        }
    }
}
