//! Homeostasis: the metabolic mode of a lifeform and the tokens that it releases for a task. The rules are data: the
//! neurons of the fascicle that its definition names, by default `config/fascicles/homeostasis.toml`.

use fascicles::{Decided, FascicleId, Fascicles};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::Timestamp;
use store::ledger::Amount;

use crate::metabolism::{Fed, Mode, Policy, Strategy, hunger};
use crate::spec::{HOMEOSTASIS, Metabolism};

const HOUR_MS: f64 = 3_600_000.0;
/// The hysteresis: a mode ends only beyond this share of its entry bound.
const HYSTERESIS: f64 = 0.8;

/// A task for which a lifeform releases tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// A heartbeat: is it time to look for due work?
    #[default]
    Beat,
    /// An answer to a message.
    Answer,
    /// The pursuit of a goal.
    Goal,
    /// A schedule.
    Schedule,
    /// An own thought that nobody asked for.
    Thought,
    /// The maintenance of the mind.
    Upkeep,
    /// The summary of a long topic.
    Compaction,
}

/// A request to release tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Request<'a> {
    /// The task.
    pub task: Task,
    /// `true` if the task has a time that has come.
    pub is_urgent: bool,
    /// The sort of the principal that the task serves: `operator`, `participant`, `lifeform` or `system`.
    pub by: &'a str,
    /// The principal that the task serves.
    pub person: &'a str,
}

/// The state of a lifeform that the rules read.
#[derive(Clone, Copy, Debug)]
pub struct Condition<'a> {
    /// The supply.
    pub fed: Fed,
    /// The mode so far.
    pub mode: Mode,
    /// The order of an operator.
    pub policy: &'a Policy,
    /// The thresholds.
    pub metabolism: &'a Metabolism,
    /// The time.
    pub now: Timestamp,
    /// The hour of the day where the lifeform lives.
    pub hour: i8,
}

/// The decision of the rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The metabolic mode.
    pub mode: Mode,
    /// The number of heartbeats of which one acts.
    #[serde(default = "one")]
    pub every: u32,
    /// `true` if the task may start now.
    pub release: bool,
    /// The part of the free balance within which the cost of the task must be, from 0 to 1.
    pub share: f64,
    /// The rules that applied, by neuron.
    #[serde(default)]
    pub rules: Vec<(String, Option<String>)>,
}

fn one() -> u32 {
    1
}

impl Decision {
    /// Returns `true` if a task that costs `need` may start with a free balance.
    pub fn covers(&self, free: Amount, need: Amount) -> bool {
        let share = |amount: i64| (amount as f64 * self.share.clamp(0.0, 1.0)) as i64;
        let part = Amount { tokens: share(free.tokens), micro_usd: share(free.micro_usd) };
        self.release && if self.share >= 1.0 { free.covers(need) } else { part.covers(need) }
    }
}

/// Returns the decision of the rules of a fascicle. If they give none, the shipped rules decide, and the error says why.
pub async fn decide(
    fascicles: &Fascicles,
    id: &FascicleId,
    condition: Condition<'_>,
    request: Request<'_>,
) -> (Decision, Option<String>) {
    let members = members(condition, request);
    let why = match decided(fascicles, id, members.clone()).await {
        Ok(decision) => return (decision, None),
        Err(why) => why,
    };
    let shipped = decided(fascicles, &HOMEOSTASIS.into(), members).await;
    // The shipped rules are checked by a test; without any rules, nothing but answers is released.
    let resting = Decision {
        mode: condition.mode,
        every: 1,
        release: request.task == Task::Answer,
        share: 1.0,
        rules: Vec::new(),
    };
    (shipped.unwrap_or(resting), Some(why))
}

/// Checks that the rules of a fascicle decide on every task.
///
/// # Errors
/// A message that names the fault.
pub async fn check(fascicles: &Fascicles, id: &FascicleId, metabolism: &Metabolism) -> Result<(), String> {
    let tasks = [Task::Beat, Task::Answer, Task::Goal, Task::Schedule, Task::Thought, Task::Upkeep, Task::Compaction];
    let fed = |free_tokens| Fed { free_tokens, empty_in_ms: None };
    for (task, free_tokens) in tasks.into_iter().flat_map(|task| [(task, 0), (task, 1 << 40)]) {
        let policy = Policy::default();
        let now = Timestamp::UNIX_EPOCH;
        let condition =
            Condition { fed: fed(free_tokens), mode: Mode::Standard, policy: &policy, metabolism, now, hour: 12 };
        let request = Request { task, by: "participant", person: "user:ada", ..Request::default() };
        decided(fascicles, id, members(condition, request)).await.map_err(|why| format!("homeostasis: {why}"))?;
    }
    Ok(())
}

async fn decided(fascicles: &Fascicles, id: &FascicleId, mut members: Map<String, Value>) -> Result<Decision, String> {
    let decider = fascicles.decider(id).await.map_err(|error| error.to_string())?;
    let Decided { members: set, rules } = decider.decide(&members);
    members.extend(set);
    members.insert("rules".into(), json!(rules));
    let decision: Decision = serde_json::from_value(Value::Object(members))
        .map_err(|error| format!("{id} does not decide on mode, release and share: {error}"))?;
    match (0.0..=1.0).contains(&decision.share) && (1..=10_000).contains(&decision.every) {
        true => Ok(decision),
        false => Err(format!(
            "{id} decides on a share of {} at every {}th heartbeat: 0 to 1, 1 to 10000",
            decision.share, decision.every
        )),
    }
}

/// Returns the input of the rules.
fn members(condition: Condition<'_>, request: Request<'_>) -> Map<String, Value> {
    let Condition { fed, mode, policy, metabolism, now, hour } = condition;
    let is_ordered = policy.expires_at.is_none_or(|end| now < end);
    let strategy = if is_ordered { policy.strategy } else { Strategy::Default };
    let hours_below = Some(metabolism.eco_below_hours).filter(|hours| *hours > 0);
    let hyper_above = Some(metabolism.hyper_above_tokens).filter(|tokens| *tokens > 0);
    let read = json!({
        "mode": mode,
        "strategy": strategy,
        "free_tokens": fed.free_tokens,
        "hours_left": fed.empty_in_ms.map(|ms| ms as f64 / HOUR_MS),
        "hunger": hunger(fed.free_tokens, metabolism),
        "hour": hour,
        "eco_below_tokens": metabolism.eco_below_tokens,
        "eco_until_tokens": metabolism.eco_until_tokens,
        "eco_below_hours": hours_below,
        "eco_until_hours": hours_below.map(|hours| f64::from(hours) / HYSTERESIS),
        "hyper_above_tokens": hyper_above,
        "hyper_until_tokens": hyper_above.map(|tokens| tokens as f64 * HYSTERESIS),
    });
    let both = [read, json!(request)].into_iter().filter_map(|part| match part {
        Value::Object(members) => Some(members),
        _ => None,
    });
    both.flatten().collect()
}
