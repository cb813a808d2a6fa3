//! The cost of a JSON Schema for one value. A few lines of references that double at each level can take years to
//! evaluate. Therefore the schemas that apply to the same value are counted before a schema is accepted.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

/// The maximum number of schemas that apply to one value.
const APPLIED_MAX: u64 = 10_000;
/// The maximum nesting depth of schemas, including references.
const DEPTH_MAX: usize = 128;

/// The members that contain named schemas.
const NAMED: [&str; 5] = ["properties", "patternProperties", "dependentSchemas", "$defs", "definitions"];
/// The members that contain no schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
/// The members whose schemas apply to the same value as the schema itself.
const IN_PLACE: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];

/// Checks the cost of a schema.
///
/// # Errors
/// Returns the exceeded limit, or the reason why the cost cannot be computed.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    let recurring = recurring(schema);
    if !recurring.is_empty() {
        recurs_by_parts(schema, &recurring)?;
    }
    let mut counted = Counted { root: schema, known: HashMap::new() };
    counted.everywhere(schema, 0)
}

/// Returns the references that lead back to themselves, directly or through other references.
fn recurring(root: &Value) -> HashSet<&str> {
    let mut all = HashSet::new();
    references(root, &mut all);
    let within = |to: &str| -> HashSet<&str> {
        let mut found = HashSet::new();
        let target = to.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        target.into_iter().for_each(|target| references(target, &mut found));
        found
    };
    let leads: HashMap<&str, HashSet<&str>> = all.iter().map(|to| (*to, within(to))).collect();
    let comes_back = |from: &&&str| {
        let (mut seen, mut todo) = (HashSet::new(), vec![**from]);
        while let Some(at) = todo.pop() {
            for next in leads.get(at).into_iter().flatten() {
                if next == *from {
                    return true;
                }
                if seen.insert(*next) {
                    todo.push(next);
                }
            }
        }
        false
    };
    all.iter().filter(comes_back).copied().collect()
}

fn references<'s>(schema: &'s Value, found: &mut HashSet<&'s str>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(to)) = members.get("$ref") {
                found.insert(to);
            }
            members
                .iter()
                .filter(|(name, _)| !DATA.contains(&name.as_str()))
                .for_each(|(_, inner)| references(inner, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

/// Checks that a recursive schema applies once to each part of a value: by one reference, one branch, or the parts. Two
/// applications to the same part would double the cost with each level of the value.
fn recurs_by_parts(schema: &Value, recurring: &HashSet<&str>) -> Result<(), String> {
    let recurs = |inner: &Value| {
        let mut found = HashSet::new();
        references(inner, &mut found);
        found.iter().any(|to| recurring.contains(to))
    };
    match schema {
        Value::Object(members) => {
            let mut ways =
                usize::from(members.get("$ref").and_then(Value::as_str).is_some_and(|to| recurring.contains(to)));
            let mut by_parts = false;
            for (name, inner) in members {
                match name.as_str() {
                    "$ref" | "$defs" | "definitions" => {}
                    name if DATA.contains(&name) => {}
                    "properties" | "additionalProperties" | "items" | "prefixItems" => by_parts |= recurs(inner),
                    "allOf" | "anyOf" | "oneOf" => {
                        ways += inner.as_array().into_iter().flatten().filter(|branch| recurs(branch)).count();
                    }
                    "dependentSchemas" | "patternProperties" => {
                        ways += inner.as_object().into_iter().flatten().filter(|(_, branch)| recurs(branch)).count();
                    }
                    _ => ways += usize::from(recurs(inner)),
                }
            }
            if ways + usize::from(by_parts) > 1 {
                return Err(
                    "a schema that recurs may do so once for each part of a value, not in several branches".into()
                );
            }
            for (name, inner) in members.iter().filter(|(name, _)| !DATA.contains(&name.as_str())) {
                match inner {
                    // The object that contains named schemas is no schema itself.
                    Value::Object(named) if NAMED.contains(&name.as_str()) => {
                        named.values().try_for_each(|inner| recurs_by_parts(inner, recurring))?;
                    }
                    inner => recurs_by_parts(inner, recurring)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|inner| recurs_by_parts(inner, recurring)),
        _ => Ok(()),
    }
}

struct Counted<'s> {
    root: &'s Value,
    /// The known counts by reference; `None` during the count.
    known: HashMap<&'s str, Option<u64>>,
}

impl<'s> Counted<'s> {
    /// Counts all schemas, at any position.
    fn everywhere(&mut self, schema: &'s Value, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("schemas stand {DEPTH_MAX} deep at most"));
        }
        match schema {
            Value::Object(members) => {
                self.applied(schema, 0)?;
                members
                    .iter()
                    .filter(|(name, _)| !DATA.contains(&name.as_str()))
                    .try_for_each(|(_, inner)| self.everywhere(inner, depth + 1))
            }
            Value::Array(items) => items.iter().try_for_each(|inner| self.everywhere(inner, depth + 1)),
            _ => Ok(()),
        }
    }

    /// Returns the number of schemas that apply to a value to which this one applies.
    fn applied(&mut self, schema: &'s Value, depth: usize) -> Result<u64, String> {
        if depth > DEPTH_MAX {
            return Err(format!("references stand {DEPTH_MAX} deep at most"));
        }
        let Value::Object(members) = schema else { return Ok(1) };
        let mut count: u64 = 1;
        if members.contains_key("$dynamicRef") || members.contains_key("$recursiveRef") {
            return Err("$dynamicRef is not taken; refer by \"#/$defs/…\"".into());
        }
        if let Some(Value::String(to)) = members.get("$ref") {
            count += self.referred(to, depth)?;
        }
        for inner in IN_PLACE.iter().filter_map(|name| members.get(*name)) {
            match inner {
                Value::Array(several) => {
                    for one in several {
                        count += self.applied(one, depth + 1)?;
                    }
                }
                Value::Object(named) if members.get("dependentSchemas").is_some_and(|it| std::ptr::eq(it, inner)) => {
                    for one in named.values() {
                        count += self.applied(one, depth + 1)?;
                    }
                }
                one => count += self.applied(one, depth + 1)?,
            }
        }
        if count > APPLIED_MAX {
            return Err(format!("more than {APPLIED_MAX} schemas would apply to one value"));
        }
        Ok(count)
    }

    fn referred(&mut self, to: &'s str, depth: usize) -> Result<u64, String> {
        match self.known.get(to) {
            Some(Some(count)) => return Ok(*count),
            Some(None) => return Err(format!("$ref \"{to}\" leads back to itself without an end")),
            None => {}
        }
        let pointer = to.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer.ok_or_else(|| format!("$ref \"{to}\" leads outside; refer by \"#/$defs/…\""))?;
        let target = self.root.pointer(pointer).ok_or_else(|| format!("$ref \"{to}\" leads nowhere"))?;
        self.known.insert(to, None);
        let count = self.applied(target, depth + 1)?;
        self.known.insert(to, Some(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check;

    #[test]
    fn what_doubles_is_refused_and_what_recurs_by_its_parts_is_not() {
        let tree = json!({
            "$ref": "#/$defs/t",
            "$defs": {"t": {"type": "object", "properties": {"left": {"$ref": "#/$defs/t"}, "right": {"$ref": "#/$defs/t"}}}},
        });
        assert_eq!(check(&tree), Ok(()));
        assert_eq!(check(&json!({"properties": {"next": {"$ref": "#"}}})), Ok(()));
        let list = json!({
            "oneOf": [{"type": "null"}, {"type": "object", "properties": {"next": {"$ref": "#"}, "value": {"type": "string"}}}],
        });
        assert_eq!(check(&list), Ok(()));
        for deep in [
            json!({"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}),
            json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}),
            json!({"properties": {"a": {"$ref": "#"}}, "patternProperties": {"a": {"$ref": "#"}}}),
            json!({
                "$ref": "#/$defs/x",
                "$defs": {"x": {"items": {"anyOf": [{"$ref": "#/$defs/y"}, {"$ref": "#/$defs/x"}]}}, "y": {"items": {"$ref": "#/$defs/x"}}},
            }),
        ] {
            assert!(check(&deep).unwrap_err().contains("once for each part"), "{deep}");
        }
        let mut doubling = json!({"$ref": "#/$defs/d0", "$defs": {"d40": {"type": "string"}}});
        for at in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
            doubling["$defs"][format!("d{at}")] = json!({"allOf": [next, next]});
        }
        assert!(check(&doubling).unwrap_err().contains("schemas would apply"));
        assert!(check(&json!({"$ref": "#"})).unwrap_err().contains("leads back"));
        assert!(check(&json!({"$ref": "http://x/y"})).unwrap_err().contains("outside"));
        assert!(check(&json!({"$ref": "#/$defs/none"})).unwrap_err().contains("nowhere"));
        assert!(check(&json!({"enum": [{"$ref": "http://x"}]})).is_ok());
    }
}
