//! The quiet hours of a lifeform.

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use serde::{Deserialize, Serialize};

/// The daily hours in which a lifeform does not post unasked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quiet {
    /// The start, such as `22:00`.
    pub from: String,
    /// The end, such as `07:00`. The same time as the start means no quiet hours.
    pub to: String,
    /// The time zone (default: UTC).
    #[serde(default)]
    pub zone: Option<String>,
}

impl Quiet {
    fn parts(&self) -> Result<(civil::Time, civil::Time, TimeZone), String> {
        let time = |name: &str, text: &str| {
            civil::Time::strptime("%H:%M", text).map_err(|_| format!("{name}: \"{text}\" is no time such as 22:00"))
        };
        let zone = match &self.zone {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|error| format!("zone: {error}"))?,
        };
        Ok((time("from", &self.from)?, time("to", &self.to)?, zone))
    }

    /// Checks the rules that deserialisation does not check.
    ///
    /// # Errors
    /// A message that names the invalid member.
    pub fn check(&self) -> Result<(), String> {
        self.parts().map(drop)
    }

    /// Returns the end of the quiet hours, if `at` is in them.
    pub(super) fn ends(&self, at: Timestamp) -> Option<Timestamp> {
        let (from, to, zone) = self.parts().ok()?;
        let here = at.to_zoned(zone.clone());
        let (day, time) = (here.date(), here.time());
        let end = match from <= to {
            true if from <= time && time < to => day.to_datetime(to),
            false if time >= from => day.tomorrow().ok()?.to_datetime(to),
            false if time < to => day.to_datetime(to),
            _ => return None,
        };
        end.to_zoned(zone).ok().map(|end| end.timestamp())
    }
}
