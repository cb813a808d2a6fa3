//! New entities of a mind map.

use serde_json::{Value, json};
use store::PrincipalKind;

use super::super::edit::{check_id, order};
use super::super::{Edit, Refusal, State, WriteContext};
use super::view::is_by;
use super::{SHARES, path};

/// Returns `true` for an id as lifeforms derive it from their jobs, which another writer could take in advance.
fn is_derived(id: &str) -> bool {
    let hash = id.strip_prefix('n').filter(|hash| hash.len() == 12);
    hash.is_some_and(|hash| hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
}

/// Adds an entity with its author and the time.
pub(super) fn made(
    state: &State,
    collection: &str,
    id: &str,
    mut entity: Value,
    max: usize,
    ask: &WriteContext,
) -> Result<Edit, Refusal> {
    check_id("id", id)?;
    let lives_here = ask.who.kind == PrincipalKind::Lifeform && !ask.who.guest;
    if is_derived(id) && !lives_here {
        return Err(Refusal::schema("id", "ids like this are the lifeforms' own"));
    }
    if state.get(&path(collection, id)).is_some() {
        return Err(Refusal::Exists(format!("{} {id}", collection.trim_end_matches('s'))));
    }
    let (all, each) = (state.count(&format!("/{collection}")), max / SHARES);
    if all >= max {
        return Err(Refusal::State(format!("a mind map has at most {max} {collection}")));
    }
    let own = || state.children(&format!("/{collection}")).filter(|entity| is_by(entity, &ask.who.id)).count();
    if all >= each && ask.who.is_bound() && own() >= each {
        return Err(Refusal::State(format!("one participant has at most {each} {collection} on a mind map")));
    }
    entity["id"] = json!(id);
    entity["by"] = json!(ask.who.id);
    entity["at"] = json!(ask.at);
    entity["rev"] = json!(ask.rev);
    if entity.get("ord").is_none() {
        entity["ord"] = json!(order(ask.rev));
    }
    let mut edit = Edit::default();
    edit.put(path(collection, id), entity);
    Ok(edit)
}
