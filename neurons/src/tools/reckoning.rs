//! The tools that compute: `calculate` and `date` as built-in tools, and formulas as a runner of tools that an author defines.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Span, Unit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{Clock, Origin};
use utoipa::ToSchema;

use super::expression::{Computed, Expression, decimal_of};
use super::{BuiltinTool, Builtins, Caller};

/// The maximum number of formulas of one tool.
const FORMULAS_MAX: usize = 16;

/// A calculation with the parameters of the tool as variables.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Formulas {
    /// The formulas by the name of their result: at most 16. A formula may use the results of others. The result of the call is an
    /// object with these names; one whose variables were not all given is null.
    pub formulas: BTreeMap<String, String>,
}

impl Formulas {
    /// Checks that the formulas parse and use nothing but parameters and each other.
    ///
    /// # Errors
    /// A sentence that names the formula and the fault.
    pub(super) fn check(&self, parameters: &Value) -> Result<(), String> {
        if self.formulas.is_empty() || self.formulas.len() > FORMULAS_MAX {
            return Err(format!("formulas has 1 to {FORMULAS_MAX} entries"));
        }
        let parameters = parameters["properties"].as_object();
        let is_parameter = |name: &str| parameters.is_some_and(|known| known.contains_key(name));
        let mut open: BTreeMap<&str, Expression> = BTreeMap::new();
        for (name, formula) in &self.formulas {
            let parsed = Expression::parse(formula).map_err(|error| format!("formulas.{name}: {error}"))?;
            if is_parameter(name) {
                return Err(format!("formulas.{name}: a parameter has this name"));
            }
            if let Some(unknown) =
                parsed.names().into_iter().find(|used| !is_parameter(used) && !self.formulas.contains_key(*used))
            {
                return Err(format!("formulas.{name}: \"{unknown}\" is no parameter and no formula"));
            }
            open.insert(name, parsed);
        }
        while !open.is_empty() {
            let waits = |formula: &Expression| formula.names().iter().any(|used| open.contains_key(used));
            let Some(next) = open.iter().find(|(_, formula)| !waits(formula)).map(|(name, _)| *name) else {
                let names: Vec<&str> = open.into_keys().collect();
                return Err(format!("formulas: {} use each other in a circle", names.join(", ")));
            };
            open.remove(next);
        }
        Ok(())
    }

    /// Returns the results for the arguments of a call. Arguments that are null or absent make the formulas that use them null.
    ///
    /// # Errors
    /// A sentence for a model that names the formula and the fault.
    pub(super) fn results(&self, given: &Map<String, Value>) -> Result<Value, String> {
        if let Some((name, _)) = given.iter().find(|(_, value)| value.is_number() && decimal_of(value).is_none()) {
            return Err(format!("{name} has too many digits, or is too large"));
        }
        let numbers =
            given.iter().filter_map(|(name, value)| Some((name.clone(), Computed::Number(decimal_of(value)?))));
        let mut known: BTreeMap<String, Computed> = numbers.collect();
        let mut results: Map<String, Value> = self.formulas.keys().map(|name| (name.clone(), Value::Null)).collect();
        let mut open: Vec<(&String, Expression)> = Vec::new();
        for (name, formula) in &self.formulas {
            open.push((name, Expression::parse(formula)?));
        }
        // Each round computes the formulas of which all variables are known.
        while let Some(at) =
            open.iter().position(|(_, formula)| formula.names().iter().all(|used| known.contains_key(*used)))
        {
            let (name, formula) = open.remove(at);
            let value = formula.value(&known).map_err(|error| format!("{name}: {error}"))?;
            known.insert(name.clone(), value);
            results.insert(name.clone(), value.in_json());
        }
        Ok(Value::Object(results))
    }
}

/// The built-in tools `calculate` and `date`. Everybody may use them.
pub(crate) struct Reckoning {
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Deserialize)]
struct Calculate {
    expression: String,
}

#[derive(Deserialize)]
struct AskedDate {
    from: Option<String>,
    add: Option<String>,
    until: Option<String>,
    zone: Option<String>,
}

#[async_trait]
impl Builtins for Reckoning {
    fn tools(&self) -> Vec<BuiltinTool> {
        let text = json!({"type": "string"});
        let tool = |name, description, required: Value, properties: Value| BuiltinTool {
            name,
            description,
            parameters: match required.is_null() {
                true => json!({"type": "object", "properties": properties}),
                false => json!({"type": "object", "required": required, "properties": properties}),
            },
            reads: true,
            quotes: false,
        };
        vec![
            tool(
                "calculate",
                "Exact: 347*28, 15% of 240, max(3, 9).",
                json!(["expression"]),
                json!({"expression": text}),
            ),
            tool(
                "date",
                "A day with its weekday: from (today) plus add, or the days from then until a day.",
                Value::Null,
                json!({
                    "from": {"type": "string", "description": "2026-12-04"},
                    "add": {"type": "string", "description": "3 days, -2 weeks"},
                    "until": {"type": "string", "description": "2026-12-24"},
                    "zone": {"type": "string", "description": "Europe/Lisbon"},
                }),
            ),
        ]
    }

    async fn call(&self, name: &str, arguments: Map<String, Value>, _: &Origin, _: &Caller) -> Result<Value, String> {
        // A model that fills in all members writes empty texts for those that it does not want.
        let given = arguments.into_iter().filter(|(_, value)| !value.is_null() && value != "");
        let given = Value::Object(given.collect());
        match name {
            "calculate" => {
                let Calculate { expression } = serde_json::from_value(given).map_err(|error| error.to_string())?;
                Expression::parse(&expression)?.value(&BTreeMap::new()).map(Computed::in_json)
            }
            _ => date(&serde_json::from_value(given).map_err(|error| error.to_string())?, self.clock.now()),
        }
    }
}

/// Returns `true` for a span with a unit below the day.
fn has_hours(span: Span) -> bool {
    span.get_hours() != 0 || span.get_minutes() != 0 || span.get_seconds() != 0
}

/// Returns a day with its weekday, and the number of days until another one.
fn date(asked: &AskedDate, now: store::Timestamp) -> Result<Value, String> {
    let zone = match &asked.zone {
        None => TimeZone::UTC,
        Some(name) => {
            TimeZone::get(name).map_err(|_| format!("there is no zone \"{name}\": name it as Europe/Lisbon"))?
        }
    };
    let day = |text: &str| {
        let read = text.parse::<DateTime>();
        read.map_err(|_| format!("\"{text}\" is no day: write it as 2026-12-04 or 2026-12-04T09:30"))
    };
    let has_time = |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains(':'));
    let from = match &asked.from {
        Some(from) => day(from)?,
        None => now.to_zoned(zone.clone()).datetime(),
    };
    let span = match &asked.add {
        None => None,
        Some(add) => {
            let span: Result<Span, _> = add.parse();
            Some(span.map_err(|_| format!("\"{add}\" is no span: write it as 3 days or P3D"))?)
        }
    };
    let keeps_time = has_time(&asked.from) || span.is_some_and(has_hours);
    let from = if keeps_time { from } else { from.date().to_datetime(jiff::civil::Time::midnight()) };
    let found = match span {
        None => from,
        Some(span) => from.checked_add(span).map_err(|_| "that day is out of range".to_owned())?,
    };
    let form = if keeps_time { "%Y-%m-%dT%H:%M" } else { "%Y-%m-%d" };
    let mut answer = json!({
        "date": found.strftime(form).to_string(),
        "weekday": found.strftime("%A").to_string(),
    });
    if let Some(until) = &asked.until {
        let until = day(until)?;
        let between =
            found.date().until((Unit::Day, until.date())).map_err(|_| "that day is out of range".to_owned())?;
        answer["until"] = until.date().to_string().into();
        answer["days"] = between.get_days().into();
    }
    if asked.from.is_none() {
        answer["zone"] = zone.iana_name().unwrap_or("UTC").into();
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formulas(formulas: Value) -> Formulas {
        serde_json::from_value(json!({"formulas": formulas})).unwrap()
    }

    #[test]
    fn formulas_use_parameters_and_each_other() {
        let stay = formulas(json!({"total": "nights * per_night", "left": "budget - total"}));
        let parameters = json!({"properties": {"nights": {}, "per_night": {}, "budget": {}}});
        assert_eq!(stay.check(&parameters), Ok(()));
        let of = |given: Value| stay.results(given.as_object().unwrap());
        assert_eq!(
            of(json!({"nights": 3, "per_night": 9500, "budget": 40000})),
            Ok(json!({"total": 28500, "left": 11500}))
        );
        assert_eq!(of(json!({"nights": "3", "per_night": 0.1})), Ok(json!({"total": 0.3, "left": null})));
        assert_eq!(of(json!({"nights": null, "budget": 40000})), Ok(json!({"total": null, "left": null})));
        assert!(of(json!({"nights": 9e27, "per_night": 9e27})).unwrap_err().contains("total: the result is too large"));
        let cheap = formulas(json!({"is_short": "nights <= 7", "total": "is_short ? nights * per_night : 0"}));
        assert_eq!(cheap.check(&parameters), Ok(()));
        let given = json!({"nights": 3, "per_night": 2});
        assert_eq!(cheap.results(given.as_object().unwrap()), Ok(json!({"is_short": true, "total": 6})));
        for (wrong, why) in [
            (json!({}), "1 to 16"),
            (json!({"a": "1 +"}), "formulas.a: it ends"),
            (json!({"a": "price"}), "\"price\" is no parameter"),
            (json!({"a": "b", "b": "a"}), "in a circle"),
            (json!({"nights": "1"}), "a parameter has this name"),
        ] {
            let error = formulas(wrong).check(&parameters).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn days_are_counted_in_the_calendar() {
        let now: store::Timestamp = "2026-11-27T23:30:00Z".parse().unwrap();
        let of = |asked: Value| date(&serde_json::from_value(asked).unwrap(), now);
        assert_eq!(of(json!({})).unwrap(), json!({"date": "2026-11-27", "weekday": "Friday", "zone": "UTC"}));
        assert_eq!(of(json!({"zone": "Asia/Tokyo"})).unwrap()["date"], "2026-11-28");
        assert_eq!(of(json!({"add": "45 minutes"})).unwrap()["date"], "2026-11-28T00:15");
        assert_eq!(of(json!({"from": "2028-02-28", "add": "1 day"})).unwrap()["date"], "2028-02-29");
        assert_eq!(of(json!({"from": "2026-01-31", "add": "1 month"})).unwrap()["date"], "2026-02-28");
        assert_eq!(of(json!({"from": "2026-12-24", "add": "-P2W"})).unwrap()["weekday"], "Thursday");
        assert_eq!(of(json!({"from": "2026-11-27", "until": "2026-12-24"})).unwrap()["days"], 27);
        assert_eq!(of(json!({"from": "2026-12-24", "until": "2026-12-20"})).unwrap()["days"], -4);
        assert_eq!(of(json!({"from": "2026-12-04T09:30", "add": "45 minutes"})).unwrap()["date"], "2026-12-04T10:15");
        for (bad, why) in [
            (json!({"from": "tomorrow"}), "is no day"),
            (json!({"add": "soon"}), "is no span"),
            (json!({"zone": "Moon"}), "no zone"),
            (json!({"from": "9999-12-31", "add": "5 years"}), "out of range"),
        ] {
            let error = of(bad).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
