//! The checks of what is set: texts, shares and times.

use std::str::FromStr;

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use store::Principal;

use super::requests::schema;
use super::{PLAN_MAX, SHARES, TEXT_BYTES_MAX};
use crate::canvas::Refusal;

pub(super) fn check_line(path: &str, text: &str) -> Result<(), Refusal> {
    match text.trim().is_empty() || text.chars().count() > 200 || text.contains(char::is_control) {
        true => Err(schema(path, "1 to 200 characters, none of them a control character")),
        false => Ok(()),
    }
}

pub(super) fn check_text(path: &str, text: &str) -> Result<(), Refusal> {
    match text.len() > TEXT_BYTES_MAX {
        true => Err(schema(path, format!("at most {TEXT_BYTES_MAX} bytes"))),
        false => Ok(()),
    }
}

pub(super) fn check_plan(plan: &[String]) -> Result<(), Refusal> {
    if plan.len() > PLAN_MAX {
        return Err(schema("plan", format!("at most {PLAN_MAX} steps")));
    }
    plan.iter().try_for_each(|step| check_line("plan", step))
}

pub(super) fn within_share(by: &Principal, own: impl FnOnce() -> usize, max: usize, what: &str) -> Result<(), Refusal> {
    let each = max / SHARES;
    if !by.is_bound() || own() < each {
        return Ok(());
    }
    Err(Refusal::State(format!("one principal has at most {each} {what} with a lifeform")))
}

/// Returns the next time of a cron pattern after `now`.
pub(super) fn next_of(cron: &str, zone: Option<&str>, now: Timestamp) -> Result<Timestamp, Refusal> {
    if cron.split_whitespace().count() != 5 {
        return Err(schema("cron", "a pattern has five fields: minute, hour, day, month, day of the week"));
    }
    let pattern = Cron::from_str(cron).map_err(|error| schema("cron", error))?;
    let zone = match zone {
        None => TimeZone::UTC,
        Some(name) => TimeZone::get(name).map_err(|error| schema("zone", error))?,
    };
    let next = pattern.find_next_occurrence(&now.to_zoned(zone), false);
    next.map(|next| next.timestamp()).map_err(|error| schema("cron", error))
}
