//! The tools `now` and `calculate`.

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Timestamp;

/// The maximum length of an expression and of a result, in characters.
const EXPRESSION_CHARS: usize = 200;
const RESULT_CHARS: usize = 200;
/// The maximum time of one calculation.
const CALCULATES_FOR: Duration = Duration::from_millis(500);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Now {
    #[serde(default)]
    zone: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Calculate {
    expression: String,
}

/// Returns the time in a zone, by default in `home`.
pub(super) fn now(asked: Now, now: Timestamp, home: &TimeZone) -> Result<Value, String> {
    let zone = match &asked.zone {
        None => home.clone(),
        Some(name) => {
            TimeZone::get(name).map_err(|_| format!("there is no zone \"{name}\": name it as Europe/Lisbon"))?
        }
    };
    Ok(json!(now.to_zoned(zone).strftime("%A %Y-%m-%d %H:%M (%Q)").to_string()))
}

/// The deadline of a calculation.
struct Deadline(Instant);

impl fend_core::Interrupt for Deadline {
    fn should_interrupt(&self) -> bool {
        Instant::now() >= self.0
    }
}

/// Returns the value of an expression. It runs on a thread for blocking work.
pub(super) async fn calculate(asked: Calculate) -> Result<Value, String> {
    let expression = asked.expression;
    if expression.trim().is_empty() {
        return Err("give an expression, such as 347*28".into());
    }
    if expression.chars().count() > EXPRESSION_CHARS {
        return Err(format!("an expression has at most {EXPRESSION_CHARS} characters"));
    }
    let reckoned = tokio::task::spawn_blocking(move || {
        let deadline = Deadline(Instant::now() + CALCULATES_FOR);
        fend_core::evaluate_with_interrupt(&expression, &mut fend_core::Context::new(), &deadline)
            .map(|result| result.get_main_result().to_owned())
    });
    let result = reckoned.await.map_err(|_| "it could not be calculated".to_owned())??;
    match result.chars().count() > RESULT_CHARS {
        true => Err("the result is too long".into()),
        false => Ok(json!(result)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_reckons_exactly_and_within_bounds() {
        let of = async |expression: &str| calculate(Calculate { expression: expression.into() }).await;
        assert_eq!(of("347*28").await, Ok(json!("9716")));
        assert!(of("5 km in miles").await.unwrap().as_str().unwrap().contains("3.1"));
        for bad in ["9^9^9^9^9", "what", "", &"1+".repeat(200)] {
            assert!(of(bad).await.is_err(), "{bad}");
        }
    }

    #[test]
    fn the_time_is_that_of_the_zone() {
        let at: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        let of = |zone: Option<&str>| now(Now { zone: zone.map(str::to_owned) }, at, &TimeZone::UTC);
        assert_eq!(of(Some("Asia/Tokyo")).unwrap(), "Friday 2026-11-27 21:00 (Asia/Tokyo)");
        assert!(of(None).unwrap().as_str().unwrap().contains("12:00"));
        assert!(of(Some("Moon")).is_err());
    }
}
