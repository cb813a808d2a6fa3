//! The guard of a lifeform (MISSION L5): it limits a storm of acts that cause each other (a seizure), and nutrients
//! that are spent while nobody asks (bleeding). Plain functions of counts; each intervention has its evidence and its
//! end.

use std::collections::VecDeque;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{PrincipalId, Timestamp};

/// The limits of the guard, `[guard]` in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardLimits {
    /// Jobs that a lifeform may begin within a minute.
    pub acts_per_min: u32,
    /// Things said to it within a minute.
    pub heard_per_min: u32,
    /// Jobs that it may begin within a minute for each thing that was said to it, once there are more than a few: what
    /// brings forth more than it was given does not end by itself.
    pub branching: u32,
    /// Tokens it may spend within an hour on what nobody asked for just now.
    pub unasked_tokens_per_hour: u64,
    /// Seconds after which a step that did not help is followed by the next one.
    pub step_s: u32,
    /// Seconds of calm after which all is as before.
    pub calm_s: u32,
    /// Seconds that a quarantine lasts.
    pub quarantine_s: u32,
    /// Seconds after which an answer that did not come to its end is given up.
    pub stuck_s: u64,
    /// Failures of answers that rest on one memory after which it is set apart.
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
    /// Checks what serde cannot.
    ///
    /// # Errors
    /// A sentence naming the member and what is wrong with it.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Not at all.
    #[default]
    Calm,
    /// Messages are collected from beat to beat, and answered together.
    Coalesce,
    /// Answers are given by the inhibitory fascicle, which condenses what was said before it thinks.
    Inhibit,
    /// Nothing is begun until it is over.
    Quarantine,
    /// The lifeform is stopped; a person has to start it.
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    /// The step.
    pub step: Step,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The counts that led to it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub evidence: Value,
    /// Quarantines it went through without a calm time between them.
    #[serde(default)]
    pub quarantines: u32,
}

/// The counts. They are not stored: a restart begins with zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    acts: VecDeque<Counted>,
    heard: VecDeque<Counted>,
    /// All that was spent unasked until then.
    unasked: VecDeque<(Timestamp, i64)>,
    /// The last time of an excess.
    stormy_at: Option<Timestamp>,
}

/// The time of a counted event, and the participant it was for.
type Counted = (Timestamp, Option<PrincipalId>);

/// One of so many things that are said, or begun, within a minute is for one participant at most.
const SHARES: usize = 4;
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// Jobs within a minute that say nothing yet of how many come forth from one thing.
const FEW_ACTS: usize = 24;
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// The most events of one kind that are remembered.
const REMEMBERED_MAX: usize = 20_000;

fn note<T>(list: &mut VecDeque<T>, one: T) {
    list.push_back(one);
    if list.len() > REMEMBERED_MAX {
        list.pop_front();
    }
}

impl Counts {
    /// Counts a job that was begun, for a participant if it was for one.
    pub(crate) fn act(&mut self, now: Timestamp, whom: Option<PrincipalId>) {
        note(&mut self.acts, (now, whom));
    }

    /// Counts a message, of a participant if it is one's.
    pub(crate) fn heard(&mut self, now: Timestamp, whose: Option<PrincipalId>) {
        note(&mut self.heard, (now, whose));
    }

    /// Returns `true` if a participant has said its share of what may be said within a minute.
    pub(crate) fn has_said_its_share(&self, who: &PrincipalId, limits: &GuardLimits, now: Timestamp) -> bool {
        has_share(&self.heard, who, limits.heard_per_min, now)
    }

    /// Returns `true` if a participant's share of the jobs that may be begun within a minute was begun.
    pub(crate) fn has_its_share_of_acts(&self, who: &PrincipalId, limits: &GuardLimits, now: Timestamp) -> bool {
        has_share(&self.acts, who, limits.acts_per_min, now)
    }

    /// All that it spent so far on what nobody asked for.
    pub(crate) fn spent_unasked(&mut self, tokens: i64, now: Timestamp) {
        // Less than before: what was counted turned out to be asked for, and the rest is counted from here.
        if self.unasked.back().is_some_and(|(_, before)| *before > tokens) {
            self.unasked.clear();
        }
        note(&mut self.unasked, (now, tokens));
    }

    /// Returns `true` if nothing is known yet of unasked spending.
    pub(crate) fn knows_nothing_unasked(&self) -> bool {
        self.unasked.is_empty()
    }

    /// Returns the present excess with its figures; `None` if there is none.
    fn storm(&mut self, limits: &GuardLimits, now: Timestamp) -> Option<Value> {
        for list in [&mut self.acts, &mut self.heard] {
            while list.pop_front_if(|(at, _)| *at <= now - MINUTE).is_some() {}
        }
        // The one before the hour is what the hour began with.
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

fn has_share(counted: &VecDeque<Counted>, who: &PrincipalId, max: u32, now: Timestamp) -> bool {
    let recent = counted.iter().rev().take_while(|(at, _)| *at > now - MINUTE);
    recent.filter(|(_, of)| of.as_ref() == Some(who)).count() >= (max as usize / SHARES).max(1)
}

/// Returns the state of the guard after an examination of the counts; `None` if it does not change.
pub(crate) fn judge(guard: &Guard, counts: &mut Counts, limits: &GuardLimits, now: Timestamp) -> Option<Guard> {
    let storm = counts.storm(limits, now);
    if storm.is_some() {
        counts.stormy_at = Some(now);
    }
    let since = |seconds: u32| guard.since.is_none_or(|since| now >= since + SignedDuration::from_secs(seconds.into()));
    match (guard.step, storm) {
        (Step::Stop, _) => None,
        (Step::Quarantine, _) if !since(limits.quarantine_s) => None,
        // It is tried whether it is over; should it not be, the next steps come faster to the end.
        (Step::Quarantine, _) => {
            *counts = Counts::default();
            Some(Guard { step: Step::Coalesce, since: Some(now), evidence: Value::Null, ..guard.clone() })
        }
        (step, Some(evidence)) if step == Step::Calm || since(limits.step_s) => {
            // What trickled away is counted from here: a next step is for as much again.
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
        // Again without a calm time in between it is stopped.
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
            // Once it was seen, what follows is counted anew.
            assert_eq!(found.is_some(), minute == 7, "{minute}");
        }
        // The same in ten hours is none.
        let mut counts = Counts::default();
        for hour in 0..10 {
            counts.spent_unasked(hour * 150, at(hour * 3_600));
            assert_eq!(judge(&guard, &mut counts, &LIMITS, at(hour * 3_600)), None);
        }
    }

    #[test]
    fn more_that_comes_forth_than_was_given_is_a_storm_however_slow_it_is() {
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
        assert!(counts.has_its_share_of_acts(&ada, &LIMITS, at(1)));
        assert!(!counts.has_its_share_of_acts(&PrincipalId::new("user:bob"), &LIMITS, at(1)));
        assert!(!counts.has_its_share_of_acts(&ada, &LIMITS, at(62)), "a minute is past");
    }

    #[test]
    fn limits_of_zero_are_refused() {
        assert!(GuardLimits::default().check().is_ok());
        assert!(GuardLimits { step_s: 0, ..LIMITS }.check().unwrap_err().contains("step_s"));
    }
}
