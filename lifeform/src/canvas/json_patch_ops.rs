//! Translates a JSON Patch (RFC 6902) from a client to typed ops, so that it obeys the same rules. The client must name
//! the state that it saw: by `If-Match`, or by a `test` operation.

use json_patch::{Patch, PatchOperation};
use serde_json::{Map, Value, json};

use super::kind::PatchRule;
use super::{Kind, Op, Refusal, State};

/// Returns the ops for `patch`, and checks its `test` operations against `state`.
///
/// # Errors
/// [`Refusal::Schema`] names a path that cannot be written. [`Refusal::State`] if a test fails, or if there is no test
/// and `guarded` is false.
pub(super) fn read(kind: &Kind, state: &State, patch: &Patch, guarded: bool) -> Result<Vec<Op>, Refusal> {
    let tests = patch.0.iter().filter(|op| matches!(op, PatchOperation::Test(_))).count();
    if !guarded && tests == 0 {
        return Err(Refusal::schema("patch", "it says what it saw: send If-Match, or begin with a test"));
    }
    let mut ops = Vec::new();
    for op in &patch.0 {
        if let PatchOperation::Test(test) = op {
            let found = state.at(test.path.as_str());
            if found.as_ref() != Some(&test.value) {
                let found = found.map_or_else(|| "nothing".into(), |found| cut(&found.to_string()));
                return Err(Refusal::State(format!("the test of {} fails: there is {found}", test.path)));
            }
            continue;
        }
        ops.push(kind.read(typed(kind, op)?)?);
    }
    match ops.is_empty() {
        true => Err(Refusal::schema("patch", "it changes nothing")),
        false => Ok(ops),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Returns the typed op for one operation of a patch.
fn typed(kind: &Kind, op: &PatchOperation) -> Result<Value, Refusal> {
    let path = op.path().to_string();
    let refused = |why: &str| Refusal::schema(&path, why);
    let segments: Vec<String> =
        path.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect();
    // The innermost collection on the path, the ids on it, and the member at its end.
    let (collection, ids, member) = match segments.as_slice() {
        [topics, topic, messages, rest @ ..] if topics == "topics" && messages == "messages" => match rest {
            [id] => ("messages", vec![("topic", topic), ("id", id)], None),
            [id, member] => ("messages", vec![("topic", topic), ("id", id)], Some(member)),
            _ => return Err(refused("it cannot be written by a patch")),
        },
        [collection, id] => (collection.as_str(), vec![("id", id)], None),
        [collection, id, member] => (collection.as_str(), vec![("id", id)], Some(member)),
        _ => return Err(refused("it cannot be written by a patch")),
    };
    let mut typed: Map<String, Value> = ids.into_iter().map(|(name, id)| (name.to_owned(), json!(id))).collect();
    let rules = kind.rules().patch_rules();
    let of_entity = rules.iter().find_map(|rule| match rule {
        PatchRule::Entity { collection: of, add, remove } if *of == collection => Some((*add, *remove)),
        _ => None,
    });
    let name = match (op, member, of_entity) {
        (PatchOperation::Add(add), None, Some((name, _))) => {
            let Value::Object(members) = &add.value else { return Err(refused("an entity is an object")) };
            if members.contains_key("kind")
                || typed.iter().any(|(name, id)| members.get(name).is_some_and(|named| named != id))
            {
                return Err(refused("what its path names it does not name otherwise"));
            }
            typed.extend(members.clone());
            name
        }
        (PatchOperation::Remove(_), None, Some((_, Some(name)))) => name,
        (PatchOperation::Add(_) | PatchOperation::Replace(_), Some(member), _) => {
            let known = rules.iter().find_map(|rule| match rule {
                PatchRule::Member { collection: of, member: known, op } if *of == collection && known == member => {
                    Some(*op)
                }
                _ => None,
            });
            let name = known.ok_or_else(|| refused("this member is not written by a patch"))?;
            let value = match op {
                PatchOperation::Add(add) => &add.value,
                PatchOperation::Replace(replace) => &replace.value,
                _ => &Value::Null,
            };
            typed.insert(member.clone(), value.clone());
            name
        }
        _ => {
            return Err(refused(
                "it cannot be written by a patch: use add, replace, remove and test on entities and their members",
            ));
        }
    };
    typed.insert("kind".into(), json!(name));
    Ok(Value::Object(typed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mind_map() -> Kind {
        Kind::named("zmind").unwrap()
    }

    fn ops(kind: Kind, patch: Value) -> Result<Vec<Value>, Refusal> {
        let ops = read(&kind, &kind.empty(), &serde_json::from_value(patch).unwrap(), true)?;
        Ok(ops.iter().map(|op| serde_json::to_value(op).unwrap()).collect())
    }

    #[test]
    fn a_patch_becomes_the_ops_that_do_the_same() {
        let amended =
            ops(Kind::chat(), json!([{"op": "replace", "path": "/topics/t/messages/m~1x/content", "value": "hi"}]));
        assert_eq!(
            amended.unwrap(),
            [json!({"kind": "message.amend", "topic": "t", "id": "m/x", "content": "hi", "reason": ""})]
        );
        let moved = ops(
            mind_map(),
            json!([
                {"op": "add", "path": "/nodes/n", "value": {"title": "N"}},
                {"op": "replace", "path": "/nodes/n/parent", "value": "p"},
                {"op": "remove", "path": "/links/l"},
            ]),
        );
        let names: Vec<Value> = moved.unwrap().iter().map(|op| op["kind"].clone()).collect();
        assert_eq!(names, ["node.add", "node.move", "link.remove"]);
    }

    #[test]
    fn what_no_op_does_is_refused_with_its_path() {
        for (kind, op, path) in [
            (
                Kind::chat(),
                json!({"op": "replace", "path": "/topics/t/messages/m/sender", "value": "x"}),
                "/topics/t/messages/m/sender",
            ),
            (Kind::chat(), json!({"op": "remove", "path": "/topics/t"}), "/topics/t"),
            (Kind::chat(), json!({"op": "add", "path": "/users/u", "value": {}}), "/users/u"),
            (mind_map(), json!({"op": "replace", "path": "/nodes/n/revisions/1", "value": 1}), "/nodes/n/revisions/1"),
            (mind_map(), json!({"op": "move", "path": "/nodes/n", "from": "/nodes/m"}), "/nodes/n"),
            (mind_map(), json!({"op": "add", "path": "/nodes/n", "value": {"id": "m", "title": "x"}}), "/nodes/n"),
            (mind_map(), json!({"op": "add", "path": "", "value": {}}), ""),
        ] {
            assert!(matches!(ops(kind, json!([op])), Err(Refusal::Schema { path: at, .. }) if at == path), "{op}");
        }
    }

    #[test]
    fn a_patch_says_what_it_saw() {
        let patch =
            |patch: Value| read(&Kind::chat(), &Kind::chat().empty(), &serde_json::from_value(patch).unwrap(), false);
        let replace = json!({"op": "replace", "path": "/topics/t/title", "value": "x"});
        assert!(matches!(patch(json!([replace])), Err(Refusal::Schema { .. })));
        let test = |value: Value| json!({"op": "test", "path": "/topics", "value": value});
        assert!(matches!(patch(json!([test(json!({"t": 1})), replace])), Err(Refusal::State(_))));
        assert_eq!(patch(json!([test(json!({})), replace])).unwrap().len(), 1);
        assert!(patch(json!([test(json!({}))])).is_err());
    }
}
