//! The state of a canvas: entities by JSON Pointer, in keyed maps. A clone is a pointer, so a reader keeps a revision
//! for as long as it likes, and a trial write costs only what it changes.
//!
//! As JSON, `/topics/t1/messages/m1` is a real path: the entities of a nested collection are a member of their parent.
//! [`State::apply`] takes the RFC 6902 patches that subscribers receive. Nothing else changes a state.

use std::collections::BTreeMap;
use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};

/// A collection of entities, as the members on its path: `["topics", "messages"]` means `/topics/{id}/messages`.
pub(crate) type Collection = Vec<Arc<str>>;

/// The place of an entity: its collection, its `ord`, and its pointer.
type Place = (Arc<str>, Arc<str>, Arc<str>);

/// The entities of a canvas at one revision.
#[derive(Clone, Debug)]
pub struct State {
    collections: Arc<[Collection]>,
    entities: imbl::OrdMap<Arc<str>, Arc<Value>>,
    order: imbl::OrdSet<Place>,
    counts: imbl::HashMap<Arc<str>, usize>,
    /// The approximate size of the entities in memory, in bytes.
    bytes: usize,
}

/// The effect of a patch.
#[derive(Debug, Default)]
pub struct Touched {
    /// The pointers of the entities that the patch added, changed or removed.
    pub paths: Vec<Arc<str>>,
    /// The inverse patch.
    pub inverse: Vec<PatchOperation>,
}

/// The reason for which a patch does not apply. The rules of a canvas make the patches, so this is a bug in the rules.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the patch does not apply at {path}: {message}")]
pub struct Misfit {
    /// The pointer.
    pub path: String,
    /// The reason.
    pub message: String,
}

fn misfit(path: impl ToString, message: impl ToString) -> Misfit {
    Misfit { path: path.to_string(), message: message.to_string() }
}

/// Escapes a segment of a JSON Pointer (RFC 6901 §3).
pub fn escape(segment: &str) -> String {
    segment.replace('~', "~0").replace('/', "~1")
}

/// The size of a JSON value without its text and its members, in bytes.
const VALUE_BYTES: usize = 72;

/// Returns the approximate size of a JSON value in memory, in bytes.
fn bytes_of(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(bytes_of).sum(),
            Value::Object(members) => members.iter().map(|(name, value)| name.len() + bytes_of(value)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// Returns the collection of an entity.
fn collection_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(collection, _)| collection)
}

impl State {
    /// Returns an empty canvas with its collections. Parents come before nested collections.
    pub(crate) fn empty(collections: Arc<[Collection]>) -> Self {
        let (entities, order, counts) = (imbl::OrdMap::new(), imbl::OrdSet::new(), imbl::HashMap::new());
        Self { collections, entities, order, counts, bytes: 0 }
    }

    /// Returns the entity at a pointer.
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.entities.get(path).map(|entity| &**entity)
    }

    /// Returns the entities of a collection, such as `/topics/t1/messages`, ordered by `ord`, then `id`.
    pub fn children<'a>(&'a self, collection: &str) -> impl DoubleEndedIterator<Item = &'a Value> + use<'a> {
        let collection: Arc<str> = collection.into();
        let (least, most): (Arc<str>, Arc<str>) = ("".into(), "\u{10ffff}".into());
        let places = self.order.range((collection.clone(), least.clone(), least)..=(collection, most.clone(), most));
        places.filter_map(move |(_, _, path)| self.entities.get(path)).map(|entity| &**entity)
    }

    /// Returns the number of entities of a collection.
    pub fn count(&self, collection: &str) -> usize {
        self.counts.get(collection).copied().unwrap_or(0)
    }

    /// Returns the number of entities.
    pub fn len(&self) -> usize {
        self.entities.len()
    }

    /// Returns the approximate size of the entities in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns `true` if there are no entities.
    pub fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    fn insert(&mut self, path: Arc<str>, entity: Arc<Value>) {
        let collection: Arc<str> = collection_of(&path).into();
        let ord: Arc<str> = entity["ord"].as_str().unwrap_or_default().into();
        self.bytes += bytes_of(&entity);
        if let Some(before) = self.entities.insert(path.clone(), entity) {
            self.bytes -= bytes_of(&before);
            self.order.remove(&(collection.clone(), before["ord"].as_str().unwrap_or_default().into(), path.clone()));
        } else {
            *self.counts.entry(collection.clone()).or_insert(0) += 1;
        }
        self.order.insert((collection, ord, path));
    }

    fn take(&mut self, path: &str) -> Option<Arc<Value>> {
        let entity = self.entities.remove(path)?;
        self.bytes -= bytes_of(&entity);
        let collection: Arc<str> = collection_of(path).into();
        if let Some(count) = self.counts.get_mut(&collection) {
            *count -= 1;
        }
        self.order.remove(&(collection, entity["ord"].as_str().unwrap_or_default().into(), path.into()));
        Some(entity)
    }

    /// Inserts an entity from a stored row.
    pub(super) fn restore(&mut self, path: &str, entity: Value) {
        self.insert(path.into(), Arc::new(entity));
    }

    /// Inserts all entities of a state in the form of [`Self::to_json`]. Returns their pointers.
    pub(super) fn restore_whole(&mut self, whole: Value) -> Result<Vec<Arc<str>>, Misfit> {
        let mut touched = Touched::default();
        let Value::Object(whole) = whole else { return Err(misfit("", "a state is a map of collections")) };
        for (name, entities) in whole {
            for (id, entity) in entities.as_object().cloned().unwrap_or_default() {
                self.put_new(&format!("/{name}/{}", escape(&id)), entity, &mut touched)?;
            }
        }
        Ok(touched.paths)
    }

    /// Returns the value at a pointer into the form of [`Self::to_json`].
    pub fn at(&self, pointer: &str) -> Option<Value> {
        match self.locate(pointer) {
            Ok((path, rest)) if rest.is_empty() => self.get(&path).map(|_| self.entity_json(&path)),
            Ok((path, rest)) => match self.get(&path)?.pointer(&rest) {
                Some(found) => Some(found.clone()),
                None => self.entity_json(&path).pointer(&rest).cloned(),
            },
            Err(_) => self.to_json().pointer(pointer).cloned(),
        }
    }

    /// Applies a patch completely or not at all.
    ///
    /// # Errors
    /// [`Misfit`] names the first place that does not match.
    pub fn apply(&mut self, patch: &Patch) -> Result<Touched, Misfit> {
        self.apply_where(patch, |_| true)
    }

    /// Applies a patch only to entities for which `is_due` returns `true`. The others already include it.
    pub(super) fn apply_where(&mut self, patch: &Patch, is_due: impl Fn(&str) -> bool) -> Result<Touched, Misfit> {
        let mut trial = self.clone();
        let mut touched = Touched::default();
        for op in &patch.0 {
            let pointer = op.path().as_str();
            let (path, rest) = trial.locate(pointer)?;
            if !is_due(&path) {
                continue;
            }
            match op {
                PatchOperation::Add(AddOperation { value, .. })
                | PatchOperation::Replace(ReplaceOperation { value, .. })
                    if rest.is_empty() =>
                {
                    trial.put(&path, value.clone(), &mut touched)?;
                }
                PatchOperation::Remove(_) if rest.is_empty() => trial.remove(&path, &mut touched)?,
                _ => trial.change(&path, &rest, op, &mut touched)?,
            }
        }
        touched.inverse.reverse();
        *self = trial;
        Ok(touched)
    }

    /// Returns the entity that a pointer leads to or into, and the rest of the pointer within the entity.
    fn locate(&self, pointer: &str) -> Result<(String, String), Misfit> {
        let segments: Vec<&str> = pointer.split('/').skip(1).collect();
        let is_way = |names: &Collection| {
            segments.len() >= 2 * names.len() && names.iter().enumerate().all(|(at, name)| *segments[2 * at] == **name)
        };
        let deepest = self.collections.iter().filter(|names| is_way(names)).map(|names| 2 * names.len()).max();
        let deepest = deepest.ok_or_else(|| misfit(pointer, "it leads to no entity"))?;
        let path = |some: &[&str]| some.iter().map(|segment| format!("/{segment}")).collect::<String>();
        Ok((path(&segments[..deepest]), path(&segments[deepest..])))
    }

    /// Returns the names of the collections nested in the entity at `path`.
    fn nested(&self, path: &str) -> Vec<Arc<str>> {
        let names: Vec<&str> = path.split('/').skip(1).step_by(2).collect();
        let is_in = |way: &&Collection| {
            way.len() == names.len() + 1 && way.iter().zip(&names).all(|(part, name)| **part == **name)
        };
        self.collections.iter().filter(is_in).filter_map(|way| way.last().cloned()).collect()
    }

    fn put(&mut self, path: &str, value: Value, touched: &mut Touched) -> Result<(), Misfit> {
        if self.get(path).is_some() {
            self.remove(path, touched)?;
        }
        // The removal also removes the nested entities.
        touched.inverse.push(remove(path));
        self.put_new(path, value, touched)
    }

    fn put_new(&mut self, path: &str, mut value: Value, touched: &mut Touched) -> Result<(), Misfit> {
        for name in self.nested(path) {
            let Some(nested) = value.as_object_mut().and_then(|members| members.shift_remove(&*name)) else { continue };
            let Value::Object(nested) = nested else { return Err(misfit(path, format!("{name} is a map"))) };
            for (id, entity) in nested {
                self.put_new(&format!("{path}/{name}/{}", escape(&id)), entity, touched)?;
            }
        }
        touched.paths.push(path.into());
        self.insert(path.into(), Arc::new(value));
        Ok(())
    }

    fn remove(&mut self, path: &str, touched: &mut Touched) -> Result<(), Misfit> {
        if self.get(path).is_none() {
            return Err(misfit(path, "there is no such entity"));
        }
        touched.inverse.push(add(path, self.entity_json(path)));
        let mut waiting = vec![path.to_owned()];
        while let Some(path) = waiting.pop() {
            for name in self.nested(&path) {
                let collection = format!("{path}/{name}");
                waiting.extend(self.children(&collection).map(|entity| entity_path(&collection, entity)));
            }
            self.take(&path);
            touched.paths.push(path.into());
        }
        Ok(())
    }

    /// Changes a member within an entity.
    fn change(&mut self, path: &str, rest: &str, op: &PatchOperation, touched: &mut Touched) -> Result<(), Misfit> {
        let whole = format!("{path}{rest}");
        let mut entity = self.entities.get(path).cloned().ok_or_else(|| misfit(&whole, "there is no such entity"))?;
        let before = entity.pointer(rest).cloned();
        let op = within(op, rest).ok_or_else(|| misfit(&whole, "only add, replace and remove are used"))?;
        json_patch::patch(Arc::make_mut(&mut entity), &[op]).map_err(|error| misfit(&whole, error))?;
        touched.inverse.push(before.map_or_else(|| remove(&whole), |before| add(&whole, before)));
        touched.paths.push(path.into());
        self.insert(path.into(), entity);
        Ok(())
    }

    /// Returns the state as subscribers fold it: keyed maps.
    pub fn to_json(&self) -> Value {
        self.whole(&|collection| {
            let keyed = self.children(collection).map(|entity| {
                let id = entity["id"].as_str().unwrap_or_default();
                (id.to_owned(), self.entity_json(&entity_path(collection, entity)))
            });
            Value::Object(keyed.collect())
        })
    }

    /// Returns the state as REST responses show it: each collection is an ordered array.
    pub fn to_arrays(&self) -> Value {
        self.whole(&|collection| self.array(collection))
    }

    fn whole(&self, shown: &dyn Fn(&str) -> Value) -> Value {
        let whole = self.collections.iter().filter(|names| names.len() == 1);
        Value::Object(whole.map(|names| (names[0].to_string(), shown(&format!("/{}", names[0])))).collect())
    }

    /// Returns the entity at a pointer with its nested entities.
    fn entity_json(&self, path: &str) -> Value {
        let mut value = self.get(path).cloned().unwrap_or_default();
        for name in self.nested(path) {
            let collection = format!("{path}/{name}");
            let members = self.children(&collection).map(|entity| {
                let id = entity["id"].as_str().unwrap_or_default();
                (id.to_owned(), self.entity_json(&entity_path(&collection, entity)))
            });
            let members: Map<String, Value> = members.collect();
            if let Some(value) = value.as_object_mut() {
                value.insert(name.to_string(), Value::Object(members));
            }
        }
        value
    }

    /// Returns a collection as an ordered array.
    pub fn array(&self, collection: &str) -> Value {
        let shown = self.children(collection).map(|entity| {
            let mut shown = with_lists(entity.clone());
            let path = entity_path(collection, entity);
            for name in self.nested(&path) {
                shown[&*name] = self.array(&format!("{path}/{name}"));
            }
            shown
        });
        shown.collect()
    }
}

/// Returns the pointer of an entity by its own id.
fn entity_path(collection: &str, entity: &Value) -> String {
    format!("{collection}/{}", escape(entity["id"].as_str().unwrap_or_default()))
}

/// The members that are maps by number for subscribers and arrays in REST responses.
const NUMBERED: [&str; 2] = ["revisions", "suggestions"];

/// Returns an entity as REST responses show it: numbered members are ordered arrays.
pub fn with_lists(mut entity: Value) -> Value {
    for name in NUMBERED {
        let Some(Value::Object(map)) = entity.get_mut(name).map(Value::take) else { continue };
        let by_number: BTreeMap<u64, Value> =
            map.into_iter().filter_map(|(number, value)| Some((number.parse().ok()?, value))).collect();
        entity[name] = by_number.into_values().collect();
    }
    entity
}

fn add(path: &str, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::parse(path).unwrap_or_default(), value })
}

fn remove(path: &str) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: PointerBuf::parse(path).unwrap_or_default() })
}

/// Returns `op` with the pointer `rest` instead of its own; `None` for operations that patches of a canvas do not use.
fn within(op: &PatchOperation, rest: &str) -> Option<PatchOperation> {
    let path = PointerBuf::parse(rest).ok()?;
    Some(match op {
        PatchOperation::Add(AddOperation { value, .. }) => {
            PatchOperation::Add(AddOperation { path, value: value.clone() })
        }
        PatchOperation::Replace(ReplaceOperation { value, .. }) => {
            PatchOperation::Replace(ReplaceOperation { path, value: value.clone() })
        }
        PatchOperation::Remove(_) => PatchOperation::Remove(RemoveOperation { path }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chat() -> State {
        crate::canvas::Kind::chat().empty()
    }

    fn patched(state: &mut State, patch: Value) -> Result<Patch, Misfit> {
        state.apply(&serde_json::from_value(patch).unwrap()).map(|touched| Patch(touched.inverse))
    }

    /// A client that folds the patches with any RFC 6902 library has the same state.
    #[test]
    fn what_is_folded_as_plain_json_is_the_same() {
        let mut state = chat();
        let mut plain = state.to_json();
        let patches = [
            json!([
                {"op": "add", "path": "/users/a", "value": {"id": "a"}},
                {"op": "add", "path": "/topics/t", "value": {"id": "t", "ord": "1", "messages": {}}},
            ]),
            json!([
                {
                    "op": "add",
                    "path": "/topics/t/messages/m~1x",
                    "value": {"id": "m/x", "ord": "2", "content": "hi", "revisions": {}},
                },
            ]),
            json!([{"op": "add", "path": "/topics/t-x", "value": {"id": "t-x", "ord": "0", "messages": {}}}]),
            json!([
                {"op": "replace", "path": "/topics/t/messages/m~1x/content", "value": "ho"},
                {"op": "add", "path": "/topics/t/messages/m~1x/revisions/1", "value": {"content": "hi"}},
            ]),
            json!([{"op": "remove", "path": "/topics/t-x"}, {"op": "replace", "path": "/topics/t/ord", "value": "9"}]),
        ];
        for patch in patches {
            json_patch::patch(&mut plain, &serde_json::from_value::<Patch>(patch.clone()).unwrap()).unwrap();
            patched(&mut state, patch).unwrap();
            assert_eq!(state.to_json(), plain);
        }
        let arrays = state.to_arrays();
        assert_eq!(arrays["topics"][0]["messages"][0]["revisions"], json!([{"content": "hi"}]));
        patched(&mut state, json!([{"op": "remove", "path": "/topics/t"}])).unwrap();
        assert_eq!((state.len(), state.to_json()), (1, json!({"users": {"a": {"id": "a"}}, "topics": {}})));
        assert_eq!((state.count("/topics"), state.count("/topics/t/messages")), (0, 0));
    }

    #[test]
    fn every_patch_can_be_taken_back() {
        let mut state = chat();
        let patches = [
            json!([
                {
                    "op": "add",
                    "path": "/topics/t",
                    "value": {"id": "t", "ord": "1", "messages": {"m": {"id": "m", "ord": "1"}}},
                },
            ]),
            json!([
                {"op": "add", "path": "/topics/t/messages/n", "value": {"id": "n", "ord": "0"}},
                {"op": "add", "path": "/topics/t/messages/n/ord", "value": "2"},
            ]),
            json!([
                {"op": "remove", "path": "/topics/t/messages/m"},
                {"op": "replace", "path": "/topics/t", "value": {"id": "t", "ord": "3"}},
            ]),
            json!([{"op": "remove", "path": "/topics/t"}]),
        ];
        let mut history = Vec::new();
        for patch in patches {
            let before = state.to_json();
            history.push((before, patched(&mut state, patch).unwrap()));
        }
        for (before, inverse) in history.into_iter().rev() {
            state.apply(&inverse).unwrap();
            assert_eq!(state.to_json(), before);
        }
        assert!(state.is_empty());
    }

    #[test]
    fn a_patch_that_does_not_fit_changes_nothing() {
        let mut state = chat();
        patched(&mut state, json!([{"op": "add", "path": "/users/a", "value": {"id": "a"}}])).unwrap();
        let before = state.to_json();
        for (wrong, path) in [
            (json!([{"op": "remove", "path": "/users/a"}, {"op": "remove", "path": "/users/b"}]), "/users/b"),
            (json!([{"op": "replace", "path": "/topics/t/title", "value": 1}]), "/topics/t/title"),
            (json!([{"op": "add", "path": "/elsewhere/t", "value": 1}]), "/elsewhere/t"),
            (json!([{"op": "replace", "path": "/users/a/none", "value": 1}]), "/users/a/none"),
        ] {
            assert_eq!(patched(&mut state, wrong).unwrap_err().path, path);
            assert_eq!(state.to_json(), before);
        }
    }
}
