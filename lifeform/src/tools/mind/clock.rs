//! The tool `now`.

use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Timestamp;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Now {
    #[serde(default)]
    zone: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_the_zone() {
        let at: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
        let of = |zone: Option<&str>| now(Now { zone: zone.map(str::to_owned) }, at, &TimeZone::UTC);
        assert_eq!(of(Some("Asia/Tokyo")).unwrap(), "Friday 2026-11-27 21:00 (Asia/Tokyo)");
        assert!(of(None).unwrap().as_str().unwrap().contains("12:00"));
        assert!(of(Some("Moon")).is_err());
    }
}
