//! Versions of the unit protocol (MISSION P2, P3): the supported versions, the version that answers a request, and the
//! migration of documents by one pure function per major version.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{Span, Timestamp, tz::TimeZone};
use serde_json::Value;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SchemaVersion(pub u64, pub u64, pub u64);

impl fmt::Display for SchemaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A pure function that migrates a document of one major version to the next.
pub type Migration = fn(Value) -> Value;

/// A major version of the protocol.
#[derive(Clone, Debug)]
pub struct Major {
    /// The release time. It deprecates the previous major version, which is removed twelve months later.
    pub released: Timestamp,
    /// The minor versions and patches, oldest first.
    pub versions: Vec<SchemaVersion>,
    /// The members that a version added, as JSON Pointers. Responses in older versions omit them.
    pub added: Vec<(SchemaVersion, &'static str)>,
    /// The migration from the previous major version; `None` for the first one.
    pub from_before: Option<Migration>,
}

/// The major versions by number.
#[derive(Clone, Debug)]
pub struct Schemas(BTreeMap<u64, Major>);

/// The version that answers a request, and its removal time.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The version.
    pub version: SchemaVersion,
    /// The time of its removal; `None` if it is not deprecated.
    pub sunset: Option<Timestamp>,
}

/// The reason why no version answers a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// The text is not a valid version.
    #[error("\"{0}\" is no schema version: say it as in 1.2.0, 1.2, 1 or v1")]
    Unreadable(String),
    /// No supported version is compatible.
    #[error("no version of {asked} answers; there are {}", listed(.supported))]
    NotAcceptable {
        /// The requested version.
        asked: String,
        /// The supported versions.
        supported: Vec<String>,
    },
    /// The version has been removed.
    #[error("v{major} is not served any more: use v{successor}")]
    Gone {
        /// The major version.
        major: u64,
        /// The next major version.
        successor: u64,
    },
}

fn listed(versions: &[String]) -> String {
    versions.join(", ")
}

/// Returns the URL of the vocabulary of a major version.
pub(crate) fn context_of(major: u64) -> String {
    format!("https://openknowledgepulse.org/schema/v{major}")
}

/// Returns the major version of a document.
pub fn major_of(document: &Value) -> Option<u64> {
    document["@context"].as_str()?.strip_prefix("https://openknowledgepulse.org/schema/v")?.parse().ok()
}

impl Default for Schemas {
    /// Returns the built-in versions: version 1 with its first minor version, which added the judgements of users.
    fn default() -> Self {
        let first = Major {
            released: Timestamp::UNIX_EPOCH,
            versions: vec![SchemaVersion(1, 0, 0), SchemaVersion(1, 1, 0)],
            added: vec![
                (SchemaVersion(1, 1, 0), "/metadata/record_id"),
                (SchemaVersion(1, 1, 0), "/metadata/feedback"),
            ],
            from_before: None,
        };
        Self(BTreeMap::from([(1, first)]))
    }
}

impl Schemas {
    /// Adds a major version.
    #[must_use]
    pub fn with_major(mut self, number: u64, major: Major) -> Self {
        self.0.insert(number, major);
        self
    }

    /// Returns the names of all supported versions.
    pub fn supported(&self) -> Vec<String> {
        self.0.values().flat_map(|major| &major.versions).map(SchemaVersion::to_string).collect()
    }

    /// Returns the version that answers a request for a document of major version `of` at time `now`: the requested
    /// version, else the newest earlier one of the same major version, else the oldest later one. Without a requested
    /// version, it is the newest of the document's own major version.
    ///
    /// # Errors
    /// Returns a [`VersionError`] if no version can answer.
    pub fn resolve(&self, asked: Option<&str>, of: u64, now: Timestamp) -> Result<Resolved, VersionError> {
        let asked = asked.map(str::trim).filter(|asked| !asked.is_empty());
        let (number, wanted) = match asked {
            None => (of, None),
            Some(text) => {
                let parts = read(text).ok_or_else(|| VersionError::Unreadable(text.to_owned()))?;
                (parts[0], Some(parts))
            }
        };
        let refused =
            || VersionError::NotAcceptable { asked: asked.unwrap_or_default().to_owned(), supported: self.supported() };
        // Documents can be migrated to later major versions only.
        let major = self.0.get(&number).filter(|_| number >= of).ok_or_else(refused)?;
        if !(of..number).all(|step| self.0.get(&(step + 1)).is_some_and(|next| next.from_before.is_some())) {
            return Err(refused());
        }
        let next = self.0.range(number + 1..).next();
        let sunset = next.map(|(_, next)| after_a_year(next.released));
        if let (Some((successor, _)), Some(_)) = (next, sunset.filter(|sunset| *sunset <= now)) {
            return Err(VersionError::Gone { major: number, successor: *successor });
        }
        let deprecated = next.is_some_and(|(_, next)| next.released <= now);
        let version = match wanted.as_deref() {
            // The newest version of the requested range.
            None | Some([_]) => major.versions.last(),
            Some([_, minor]) => {
                let of_minor = major.versions.iter().rfind(|version| version.1 == *minor);
                of_minor.or_else(|| nearest(&major.versions, SchemaVersion(number, *minor, u64::MAX)))
            }
            Some([_, minor, patch, ..]) => nearest(&major.versions, SchemaVersion(number, *minor, *patch)),
            Some([]) => None,
        };
        let version = *version.ok_or_else(refused)?;
        Ok(Resolved { version, sunset: sunset.filter(|_| deprecated) })
    }

    /// Migrates a document to a later major version, one migration per step. A document of that version stays
    /// unchanged.
    ///
    /// # Errors
    /// Returns [`VersionError::NotAcceptable`] if there is no migration.
    pub fn migrate(&self, mut document: Value, to: u64) -> Result<Value, VersionError> {
        let refused = || VersionError::NotAcceptable { asked: format!("v{to}"), supported: self.supported() };
        let mut at = major_of(&document).ok_or_else(refused)?;
        if to < at {
            return Err(refused());
        }
        while at < to {
            at += 1;
            let step = self.0.get(&at).and_then(|major| major.from_before).ok_or_else(refused)?;
            document = step(document);
            document["@context"] = context_of(at).into();
        }
        Ok(document)
    }

    /// Removes the members that were added after `version` from a document.
    pub fn project(&self, mut document: Value, version: SchemaVersion) -> Value {
        let added = self.0.get(&version.0).map(|major| major.added.as_slice()).unwrap_or_default();
        for (_, pointer) in added.iter().filter(|(since, _)| *since > version) {
            let Some((parent, member)) = pointer.rsplit_once('/') else { continue };
            if let Some(parent) = document.pointer_mut(parent).and_then(Value::as_object_mut) {
                parent.shift_remove(member);
            }
        }
        document
    }
}

/// Parses the one to three numbers of a version, with or without a leading `v`.
fn read(text: &str) -> Option<Vec<u64>> {
    let parts: Vec<u64> =
        text.strip_prefix('v').unwrap_or(text).split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    (1..=3).contains(&parts.len()).then_some(parts)
}

fn nearest(versions: &[SchemaVersion], wanted: SchemaVersion) -> Option<&SchemaVersion> {
    versions.iter().rfind(|version| **version <= wanted).or_else(|| versions.first())
}

fn after_a_year(then: Timestamp) -> Timestamp {
    then.to_zoned(TimeZone::UTC).checked_add(Span::new().years(1)).map_or(Timestamp::MAX, |then| then.timestamp())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn three() -> Schemas {
        let day = |text: &str| text.parse::<Timestamp>().unwrap();
        let second = Major {
            released: day("2026-06-01T00:00:00Z"),
            versions: vec![SchemaVersion(2, 0, 0)],
            added: Vec::new(),
            from_before: Some(|mut document| {
                document["body"] = document["task"].take();
                document
            }),
        };
        let third = Major {
            released: day("2027-01-01T00:00:00Z"),
            versions: vec![SchemaVersion(3, 0, 0)],
            added: Vec::new(),
            from_before: Some(|mut document| {
                document["bodies"] = json!([document["body"].take()]);
                document
            }),
        };
        Schemas::default().with_major(2, second).with_major(3, third)
    }

    fn resolved(schemas: &Schemas, asked: Option<&str>, of: u64, at: &str) -> String {
        match schemas.resolve(asked, of, at.parse().unwrap()) {
            Ok(Resolved { version, sunset: None }) => version.to_string(),
            Ok(Resolved { version, sunset: Some(_) }) => format!("{version} deprecated"),
            Err(VersionError::Unreadable(_)) => "400".into(),
            Err(VersionError::NotAcceptable { .. }) => "406".into(),
            Err(VersionError::Gone { successor, .. }) => format!("410 v{successor}"),
        }
    }

    #[test]
    fn the_nearest_compatible_version_answers() {
        let one = Schemas::default();
        let now = "2026-01-01T00:00:00Z";
        for (asked, answers) in [
            (None, "1.1.0"),
            (Some(""), "1.1.0"),
            (Some("1.0.0"), "1.0.0"),
            (Some("1.0.7"), "1.0.0"),
            (Some("1.1.0"), "1.1.0"),
            (Some("1.2.0"), "1.1.0"),
            (Some("1.2"), "1.1.0"),
            (Some("1.0"), "1.0.0"),
            (Some("1"), "1.1.0"),
            (Some("v1"), "1.1.0"),
            (Some("3.0.0"), "406"),
            (Some("0.9.0"), "406"),
            (Some("newest"), "400"),
            (Some("1.2.3.4"), "400"),
            (Some("-1"), "400"),
        ] {
            assert_eq!(resolved(&one, asked, 1, now), answers, "{asked:?}");
        }
    }

    #[test]
    fn a_schema_major_is_served_for_a_year_after_its_successor() {
        let all = three();
        for (at, of, asked, answers) in [
            ("2026-05-31T23:59:59Z", 1, Some("1"), "1.1.0"),
            ("2026-06-01T00:00:00Z", 1, Some("1"), "1.1.0 deprecated"),
            ("2026-06-01T00:00:00Z", 1, None, "1.1.0 deprecated"),
            ("2027-05-31T23:59:59Z", 1, Some("1"), "1.1.0 deprecated"),
            ("2027-06-01T00:00:00Z", 1, Some("1"), "410 v2"),
            ("2026-07-01T00:00:00Z", 1, Some("2"), "2.0.0"),
            ("2027-07-01T00:00:00Z", 1, Some("3.0.0"), "3.0.0"),
            ("2026-07-01T00:00:00Z", 2, Some("1"), "406"),
        ] {
            assert_eq!(resolved(&all, asked, of, at), answers, "{at} {of} {asked:?}");
        }
        let document = json!({"@context": context_of(1), "task": "t", "unknown": 1});
        let third = json!({"@context": context_of(3), "bodies": ["t"], "unknown": 1});
        let without = |mut document: Value| {
            for key in ["task", "body"] {
                document.as_object_mut().unwrap().shift_remove(key);
            }
            document
        };
        assert_eq!(without(all.migrate(document.clone(), 3).unwrap()), third);
        assert_eq!(all.migrate(document.clone(), 1).unwrap(), document);
        assert!(all.migrate(third, 1).is_err());
        assert!(Schemas::default().migrate(document, 2).is_err());
        let unit = json!({"metadata": {"record_id": "x", "feedback": {}, "success": true}});
        assert_eq!(all.project(unit.clone(), SchemaVersion(1, 0, 0)), json!({"metadata": {"success": true}}));
        assert_eq!(all.project(unit.clone(), SchemaVersion(1, 1, 0)), unit);
    }
}
