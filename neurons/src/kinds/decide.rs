//! Decisions by rules, without a model: a transformer with `decide` compares the members of an event's content with
//! bounds, and adds the members of the first rule that fits.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// The maximum number of rules of one neuron, and of conditions or results of one rule.
const RULES_MAX: usize = 128;
const MEMBERS_MAX: usize = 32;
/// The maximum length of the name of a rule, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// The member of a content that gets the name of the rule that fitted.
const RULE: &str = "rule";

/// A rule. The first rule of a neuron whose conditions all hold applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The name. A result contains it as `rule`, so that it shows why.
    pub name: String,
    /// The conditions, by the member that they test. Without conditions, the rule always applies.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    pub when: Map<String, Value>,
    /// The members to add. A text `$member` is replaced by the value of that member.
    #[schema(value_type = Object)]
    pub then: Map<String, Value>,
}

/// The members that rules read. A source may compute a member only when a rule asks for it.
pub trait Facts {
    /// Returns the value of a member; `None` if there is none.
    fn fact(&self, member: &str) -> Option<Cow<'_, Value>>;
}

impl Facts for Map<String, Value> {
    fn fact(&self, member: &str) -> Option<Cow<'_, Value>> {
        self.get(member).map(Cow::Borrowed)
    }
}

/// The comparisons of a condition with bounds.
const BOUNDS: [&str; 4] = ["below", "at_most", "above", "at_least"];

impl Rule {
    fn check(&self) -> Result<(), String> {
        if self.name.trim().is_empty() || self.name.len() > NAME_BYTES_MAX {
            return Err(format!("name is 1 to {NAME_BYTES_MAX} bytes"));
        }
        if self.then.is_empty() || self.then.len() > MEMBERS_MAX || self.when.len() > MEMBERS_MAX {
            return Err(format!("then has 1 to {MEMBERS_MAX} members, and when at most {MEMBERS_MAX}"));
        }
        for (member, condition) in &self.when {
            check_condition(condition).map_err(|error| format!("when.{member}: {error}"))?;
        }
        Ok(())
    }

    /// The conditions are tested in the order in which they are written.
    fn applies(&self, facts: &impl Facts) -> bool {
        self.when.iter().all(|(member, condition)| holds(facts, facts.fact(member).as_deref(), condition))
    }
}

/// Checks the rules of a neuron.
///
/// # Errors
/// Returns a sentence that names the rule and the fault.
pub(super) fn check(rules: &[Rule]) -> Result<(), String> {
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(format!("transform.decide has 1 to {RULES_MAX} rules"));
    }
    for (place, rule) in rules.iter().enumerate() {
        rule.check().map_err(|error| format!("transform.decide[{place}].{error}"))?;
    }
    Ok(())
}

/// Adds the members of the first rule that applies to `facts`, and its name as `rule`. Returns the rule; `None` if no
/// rule applies, which changes nothing.
pub fn decide<'r>(rules: &'r [Rule], facts: &mut Map<String, Value>) -> Option<&'r Rule> {
    let (rule, results) = first(rules, &*facts)?;
    facts.extend(results);
    Some(rule)
}

/// Returns the first rule that applies to `facts`, and the members that it adds, its name as `rule` among them; `None` if
/// no rule applies.
pub fn first<'r>(rules: &'r [Rule], facts: &impl Facts) -> Option<(&'r Rule, Map<String, Value>)> {
    let rule = rules.iter().find(|rule| rule.applies(facts))?;
    let value_of = |value: &Value| value_of(facts, value).map(Cow::into_owned).unwrap_or_default();
    let mut results: Map<String, Value> =
        rule.then.iter().map(|(member, value)| (member.clone(), value_of(value))).collect();
    results.insert(RULE.into(), rule.name.as_str().into());
    Some((rule, results))
}

fn check_condition(condition: &Value) -> Result<(), String> {
    match condition {
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        Value::Array(values) if values.iter().all(|value| !value.is_array() && !value.is_object()) => Ok(()),
        Value::Object(bounds) if !bounds.is_empty() => match bounds
            .iter()
            .find(|(bound, value)| !BOUNDS.contains(&bound.as_str()) || !(value.is_number() || named(value).is_some()))
        {
            None => Ok(()),
            Some((bound, _)) => {
                Err(format!("{bound} is none of {}, or its value is no number and no \"$member\"", BOUNDS.join(", ")))
            }
        },
        _ => Err("a condition is a value, a list of values, or {below?, at_most?, above?, at_least?}".into()),
    }
}

/// Returns the member that a text `$member` names.
fn named(value: &Value) -> Option<&str> {
    value.as_str()?.strip_prefix('$')
}

fn value_of<'v>(facts: &'v impl Facts, value: &'v Value) -> Option<Cow<'v, Value>> {
    match named(value) {
        Some(member) => facts.fact(member),
        None => Some(Cow::Borrowed(value)),
    }
}

/// Returns `true` if a member fits a condition. A member that is absent or null fits none.
fn holds(facts: &impl Facts, found: Option<&Value>, condition: &Value) -> bool {
    let Some(found) = found.filter(|found| !found.is_null()) else { return false };
    let equals = |wanted: &Value| match value_of(facts, wanted).as_deref() {
        Some(Value::Number(wanted)) => found.as_f64() == wanted.as_f64(),
        wanted => Some(found) == wanted,
    };
    match condition {
        Value::Array(values) => values.iter().any(equals),
        Value::Object(bounds) => bounds.iter().all(|(bound, value)| {
            let (Some(found), Some(bound_at)) =
                (found.as_f64(), value_of(facts, value).and_then(|bound| bound.as_f64()))
            else {
                return false;
            };
            match bound.as_str() {
                "below" => found < bound_at,
                "at_most" => found <= bound_at,
                "above" => found > bound_at,
                _ => found >= bound_at,
            }
        }),
        wanted => equals(wanted),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules() -> Vec<Rule> {
        serde_json::from_value(json!([
            {"name": "low", "when": {"free": {"below": "$least"}}, "then": {"mode": "eco"}},
            {"name": "night", "when": {"hour": {"at_least": 1, "below": 5}, "task": ["thought", "goal"]},
             "then": {"release": true, "share": "$rest"}},
            {"name": "else", "then": {"mode": "standard"}},
        ]))
        .unwrap()
    }

    fn decided(facts: Value) -> Value {
        let Value::Object(mut facts) = facts else { unreachable!() };
        decide(&rules(), &mut facts);
        Value::Object(facts)
    }

    #[test]
    fn the_first_rule_that_fits_adds_its_members() {
        let low = decided(json!({"free": 9, "least": 10}));
        assert_eq!((&low["mode"], &low["rule"]), (&json!("eco"), &json!("low")));
        let night = decided(json!({"free": 10, "least": 10, "hour": 4, "task": "goal", "rest": 0.5}));
        assert_eq!((&night["release"], &night["share"], &night["mode"]), (&json!(true), &json!(0.5), &Value::Null));
        for other in [
            json!({"free": 10, "least": 10, "hour": 5, "task": "goal"}),
            json!({"free": null, "least": 10}),
            json!({"free": "9", "least": 10}),
            json!({"free": 9}),
        ] {
            assert_eq!(decided(other.clone())["rule"], "else", "{other}");
        }
    }

    #[test]
    fn a_rule_with_an_unknown_form_is_refused() {
        assert_eq!(check(&rules()), Ok(()));
        for (when, then) in [
            (json!({"free": {"under": 3}}), json!({"a": 1})),
            (json!({"free": {"below": "three"}}), json!({"a": 1})),
            (json!({"free": {}}), json!({"a": 1})),
            (json!({"free": null}), json!({"a": 1})),
            (json!({"free": [[1]]}), json!({"a": 1})),
            (json!({}), json!({})),
        ] {
            let rule: Rule = serde_json::from_value(json!({"name": "x", "when": when, "then": then})).unwrap();
            assert!(check(&[rule]).is_err(), "{when} {then}");
        }
        assert!(check(&[]).is_err());
    }
}
