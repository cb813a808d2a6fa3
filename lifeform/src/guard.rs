//! The guard of a lifeform. It limits cascades of acts that cause each other (a seizure), and nutrients that are spent
//! without a request (bleeding). The guard is a plain function of counts. Each intervention stores its evidence and has
//! an end.

use std::collections::VecDeque;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{PrincipalId, Timestamp};

/// The limits of the guard: `[guard]` in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardLimits {
    /// The maximum number of jobs that a lifeform may start per minute.
    pub acts_per_min: u32,
    /// The maximum number of messages that a lifeform may perceive per minute.
    pub heard_per_min: u32,
    /// The maximum number of jobs per perceived message within a minute, checked above a small number of jobs. Acts
    /// that cause more acts than they received do not end by themselves.
    pub branching: u32,
    /// The maximum number of tokens that the lifeform may spend per hour without a present request.
    pub unasked_tokens_per_hour: u64,
    /// The time after which an unsuccessful step is followed by the next one, in seconds.
    pub step_s: u32,
    /// The time without an excess after which the intervention ends, in seconds.
    pub calm_s: u32,
    /// The duration of a quarantine, in seconds.
    pub quarantine_s: u32,
    /// The time after which an unfinished answer is abandoned, in seconds.
    pub stuck_s: u64,
    /// The number of failed answers that rest on one memory before the memory is quarantined.
    pub poison_after: u32,
}

impl Default for GuardLimits {
    fn default() -> Self {
        Self {
            acts_per_min: 240,
            heard_per_min: 1_200,
            branching: 12,
            unasked_tokens_per_hour: 60_000,
            step_s: 30,
            calm_s: 120,
            quarantine_s: 900,
            stuck_s: 900,
            poison_after: 3,
        }
    }
}

impl GuardLimits {
    /// Checks the rules that deserialisation does not check.
    ///
    /// # Errors
    /// A message that names the invalid member.
    pub fn check(&self) -> Result<(), String> {
        let positive = [
            ("acts_per_min", u64::from(self.acts_per_min)),
            ("heard_per_min", self.heard_per_min.into()),
            ("branching", self.branching.into()),
            ("unasked_tokens_per_hour", self.unasked_tokens_per_hour),
            ("step_s", self.step_s.into()),
            ("calm_s", self.calm_s.into()),
            ("quarantine_s", self.quarantine_s.into()),
            ("stuck_s", self.stuck_s),
            ("poison_after", self.poison_after.into()),
        ];
        const LIMIT: u64 = 1 << 40;
        match positive.iter().find(|(_, value)| !(1..=LIMIT).contains(value)) {
            Some((member, _)) => Err(format!("guard.{member} is 1 to {LIMIT}")),
            None => Ok(()),
        }
    }
}

/// The steps of an intervention; each includes the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = GuardStep)]
pub enum Step {
    /// The guard does not intervene.
    #[default]
    Calm,
    /// The lifeform collects messages between heartbeats, and answers them together.
    Coalesce,
    /// The inhibitory fascicle answers. It condenses the messages before it thinks.
    Inhibit,
    /// The lifeform starts no jobs until the quarantine ends.
    Quarantine,
    /// The lifeform is stopped until a person starts it.
    Stop,
}

impl Step {
    fn next(self) -> Self {
        match self {
            Self::Calm => Self::Coalesce,
            Self::Coalesce => Self::Inhibit,
            Self::Inhibit => Self::Quarantine,
            Self::Quarantine | Self::Stop => Self::Stop,
        }
    }
}

/// The state of an intervention.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Guard {
    /// The step.
    pub step: Step,
    /// The start of the step; `None` while the guard does not intervene.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The counts that led to the step.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub evidence: Value,
    /// The number of quarantines without a calm period between them.
    #[serde(default)]
    pub quarantines: u32,
}

/// The counts of events. They are not stored, so a restart begins at zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    acts: VecDeque<Counted>,
    heard: VecDeque<Counted>,
    /// The total tokens spent without a request, by time.
    unasked: VecDeque<(Timestamp, i64)>,
    /// The time of the last excess.
    stormy_at: Option<Timestamp>,
}

/// The time of a counted event, and the participant that caused it.
type Counted = (Timestamp, Option<PrincipalId>);

/// The divisor for one participant's share: at most 1/4 of the messages and of the jobs per minute.
const SHARES: usize = 4;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// The number of jobs per minute up to which `branching` is not checked.
const FEW_ACTS: usize = 24;
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// The maximum number of stored events of one kind.
const REMEMBERED_MAX: usize = 20_000;

fn note<T>(list: &mut VecDeque<T>, one: T) {
    list.push_back(one);
    if list.len() > REMEMBERED_MAX {
        list.pop_front();
    }
}

impl Counts {
    /// Counts a started job, and the participant that it serves, if any.
    pub(crate) fn act(&mut self, now: Timestamp, whom: Option<PrincipalId>) {
        note(&mut self.acts, (now, whom));
    }

    /// Counts a perceived message, and the participant that sent it, if any.
    pub(crate) fn heard(&mut self, now: Timestamp, whose: Option<PrincipalId>) {
        note(&mut self.heard, (now, whose));
    }

    /// Returns `true` if a participant has used up its share of messages per minute.
    pub(crate) fn has_said_its_share(&self, who: &PrincipalId, limits: &GuardLimits, now: Timestamp) -> bool {
        share_used_up(&self.heard, who, limits.heard_per_min, now)
    }

    /// Returns `true` if a participant has used up its share of jobs per minute.
    pub(crate) fn job_share_used_up(&self, who: &PrincipalId, limits: &GuardLimits, now: Timestamp) -> bool {
        share_used_up(&self.acts, who, limits.acts_per_min, now)
    }

    /// Records the total of tokens spent without a request.
    pub(crate) fn spent_unasked(&mut self, tokens: i64, now: Timestamp) {
        // A smaller total means that a counted amount turned out to be requested. Counting restarts from the new total.
        if self.unasked.back().is_some_and(|(_, before)| *before > tokens) {
            self.unasked.clear();
        }
        note(&mut self.unasked, (now, tokens));
    }

    /// Returns `true` if no unasked spending is recorded yet.
    pub(crate) fn knows_nothing_unasked(&self) -> bool {
        self.unasked.is_empty()
    }

    /// Returns the present excess with its counts; `None` if there is none.
    fn storm(&mut self, limits: &GuardLimits, now: Timestamp) -> Option<Value> {
        for list in [&mut self.acts, &mut self.heard] {
            while list.pop_front_if(|(at, _)| *at <= now - MINUTE).is_some() {}
        }
        // The last entry before the hour is the baseline of the hour.
        while self.unasked.get(1).is_some_and(|(at, _)| *at <= now - HOUR) {
            self.unasked.pop_front();
        }
        let trickled = match (self.unasked.front(), self.unasked.back()) {
            (Some((_, first)), Some((_, last))) => last - first,
            _ => 0,
        };
        let (acts, heard) = (self.acts.len(), self.heard.len());
        let branching = acts as f64 / heard.max(1) as f64;
        let figures = json!({
            "acts_per_min": acts,
            "heard_per_min": heard,
            "branching": branching,
            "unasked_tokens_per_hour": trickled,
        });
        let is = |name: &str| json!({"sign": name, "counted": figures, "limits": limits});
        let branches = acts > FEW_ACTS && acts > heard.max(1) * limits.branching as usize;
        if acts > limits.acts_per_min as usize || heard > limits.heard_per_min as usize || branches {
            return Some(is("seizure"));
        }
        (trickled > limits.unasked_tokens_per_hour as i64).then(|| is("bleeding"))
    }
}

fn share_used_up(counted: &VecDeque<Counted>, who: &PrincipalId, max: u32, now: Timestamp) -> bool {
    let recent = counted.iter().rev().take_while(|(at, _)| *at > now - MINUTE);
    recent.filter(|(_, of)| of.as_ref() == Some(who)).count() >= (max as usize / SHARES).max(1)
}

/// Examines the counts and returns the new state of the guard; `None` if it does not change.
pub(crate) fn judge(guard: &Guard, counts: &mut Counts, limits: &GuardLimits, now: Timestamp) -> Option<Guard> {
    let storm = counts.storm(limits, now);
    if storm.is_some() {
        counts.stormy_at = Some(now);
    }
    let since = |seconds: u32| guard.since.is_none_or(|since| now >= since + SignedDuration::from_secs(seconds.into()));
    match (guard.step, storm) {
        (Step::Stop, _) => None,
        (Step::Quarantine, _) if !since(limits.quarantine_s) => None,
        // The guard lifts the quarantine tentatively. If the excess continues, the next steps follow faster.
        (Step::Quarantine, _) => {
            *counts = Counts::default();
            Some(Guard { step: Step::Coalesce, since: Some(now), evidence: Value::Null, ..guard.clone() })
        }
        (step, Some(evidence)) if step == Step::Calm || since(limits.step_s) => {
            // Unasked spending is counted from here, so the next step needs a full excess again.
            let last = counts.unasked.back().copied();
            counts.unasked = last.into_iter().collect();
            let next = match step.next() {
                Step::Quarantine if guard.quarantines > 0 => Step::Stop,
                next => next,
            };
            let quarantines = guard.quarantines + u32::from(next == Step::Quarantine);
            Some(Guard { step: next, since: Some(now), evidence, quarantines })
        }
        (Step::Calm, _) | (_, Some(_)) => None,
        (_, None) => {
            let last = counts.stormy_at.or(guard.since);
            let is_calm = last.is_none_or(|last| now >= last + SignedDuration::from_secs(limits.calm_s.into()));
            is_calm.then(Guard::default)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    const LIMITS: GuardLimits = GuardLimits {
        acts_per_min: 10,
        heard_per_min: 100,
        branching: 5,
        unasked_tokens_per_hour: 1_000,
        step_s: 30,
        calm_s: 120,
        quarantine_s: 900,
        stuck_s: 1,
        poison_after: 1,
    };

    #[test]
    fn a_storm_is_met_step_by_step_and_calm_ends_it() {
        let (mut guard, mut counts) = (Guard::default(), Counts::default());
        let mut steps = Vec::new();
        for second in 0..120 {
            (0..2).for_each(|_| counts.act(at(second), None));
            if let Some(next) = judge(&guard, &mut counts, &LIMITS, at(second)) {
                steps.push((second, next.step));
                guard = next;
            }
        }
        assert_eq!(steps, [(5, Step::Coalesce), (35, Step::Inhibit), (65, Step::Quarantine)]);
        assert_eq!(guard.evidence["sign"], "seizure");
        let over = judge(&guard, &mut counts, &LIMITS, at(965)).unwrap();
        assert_eq!(over.step, Step::Coalesce);
        assert_eq!(judge(&over, &mut counts, &LIMITS, at(1_000)), None);
        assert_eq!(judge(&over, &mut counts, &LIMITS, at(1_085)), Some(Guard::default()));
        // A second storm without a calm period in between leads to a stop.
        let (mut guard, mut steps) = (over, Vec::new());
        for second in 966..1_100 {
            (0..2).for_each(|_| counts.act(at(second), None));
            if let Some(next) = judge(&guard, &mut counts, &LIMITS, at(second)) {
                steps.push(next.step);
                guard = next;
            }
        }
        assert_eq!(steps, [Step::Inhibit, Step::Stop]);
        assert_eq!(judge(&guard, &mut counts, &LIMITS, at(100_000)), None, "only somebody else ends that");
    }

    #[test]
    fn what_trickles_away_unasked_is_seen_within_the_hour() {
        let (guard, mut counts) = (Guard::default(), Counts::default());
        for minute in 0..10 {
            counts.spent_unasked(minute * 150, at(minute * 60));
            let found = judge(&guard, &mut counts, &LIMITS, at(minute * 60));
            // After a detection, counting restarts.
            assert_eq!(found.is_some(), minute == 7, "{minute}");
        }
        // The same amount spread over ten hours is not an excess.
        let mut counts = Counts::default();
        for hour in 0..10 {
            counts.spent_unasked(hour * 150, at(hour * 3_600));
            assert_eq!(judge(&guard, &mut counts, &LIMITS, at(hour * 3_600)), None);
        }
    }

    #[test]
    fn an_excess_of_acts_over_inputs_is_a_storm_at_any_speed() {
        let limits = GuardLimits { acts_per_min: 1_000, ..LIMITS };
        let storm = |acts: usize, heard: usize| {
            let mut counts = Counts::default();
            (0..acts).for_each(|_| counts.act(at(1), None));
            (0..heard).for_each(|_| counts.heard(at(1), None));
            judge(&Guard::default(), &mut counts, &limits, at(2)).is_some()
        };
        assert_eq!([storm(24, 1), storm(25, 1), storm(25, 5), storm(26, 5)], [false, true, false, true]);
    }

    #[test]
    fn no_participant_brings_about_a_storm_alone() {
        let (mut counts, ada) = (Counts::default(), PrincipalId::new("user:ada"));
        for _ in 0..24 {
            assert!(!counts.has_said_its_share(&ada, &LIMITS, at(1)));
            counts.heard(at(1), Some(ada.clone()));
            counts.heard(at(1), None);
            if counts.heard.len() / 2 == LIMITS.heard_per_min as usize / SHARES {
                break;
            }
        }
        (0..2).for_each(|_| counts.act(at(1), Some(ada.clone())));
        assert!(counts.job_share_used_up(&ada, &LIMITS, at(1)));
        assert!(!counts.job_share_used_up(&PrincipalId::new("user:bob"), &LIMITS, at(1)));
        assert!(!counts.job_share_used_up(&ada, &LIMITS, at(62)), "a minute is past");
    }

    #[test]
    fn limits_of_zero_are_refused() {
        assert!(GuardLimits::default().check().is_ok());
        assert!(GuardLimits { step_s: 0, ..LIMITS }.check().unwrap_err().contains("step_s"));
    }
}
