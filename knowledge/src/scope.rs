//! Scopes of visibility: their members, their distances, and their form in older records (MISSION R2).

use serde::Serialize;
use store::{Principal, Role};

use crate::record::Record;

/// The scope that contains everybody.
pub(crate) const PUBLIC: &str = "public";
/// The entity types of scopes, ordered by their distance from a principal.
const NEAREST: [&[&str]; 5] = [&["user"], &["project"], &["agent", "lifeform"], &["team"], &["org"]];

/// Returns the distance of a scope: 0 is the user's own scope, 5 is public.
pub(crate) fn distance(scope: &str) -> usize {
    let entity = scope.split_once(':').map_or(scope, |(entity, _)| entity);
    NEAREST.iter().position(|entities| entities.contains(&entity)).unwrap_or(NEAREST.len())
}

/// Returns the distance of the nearest of `scopes` that contains a principal. Operators count as members of all scopes.
pub(crate) fn nearest(scopes: &[String], by: &Principal) -> usize {
    let operator = by.may(store::Role::Operator);
    let is_in = |scope: &&String| operator || by.scopes.iter().any(|own| *own.0 == ***scope);
    scopes.iter().filter(is_in).map(|scope| distance(scope)).min().unwrap_or(NEAREST.len())
}

/// Returns `true` if a principal may see a record.
pub(crate) fn is_shown(record: &Record, to: &Principal) -> bool {
    let is_in = |scope: &String| to.scopes.iter().any(|own| *own.0 == **scope);
    to.may(Role::Operator) || is_in(&record.owner) || record.scopes.iter().any(is_in)
}

/// Checks a scope: `public`, or `entity:id` with user, agent, lifeform, project, team or org as the entity.
///
/// # Errors
/// Returns the required form.
pub fn check(scope: &str) -> Result<(), String> {
    let well_made = scope == PUBLIC
        || scope.split_once(':').is_some_and(|(entity, id)| {
            let known = NEAREST.iter().any(|entities| entities.contains(&entity));
            known && (1..=200).contains(&id.len()) && !id.contains(|c: char| c.is_whitespace() || c == ',')
        });
    match well_made {
        true => Ok(()),
        false => {
            Err("is \"public\" or entity:id, where the entity is user, agent, lifeform, project, team or org".into())
        }
    }
}

/// Checks an owner: `entity:id` with user, agent, lifeform or system as the entity.
///
/// # Errors
/// Returns the required form.
pub fn check_owner(owner: &str) -> Result<(), String> {
    let entity = owner.split_once(':').map_or("", |(entity, _)| entity);
    match entity {
        "system" => Ok(()),
        "user" | "agent" | "lifeform" if check(owner).is_ok() => Ok(()),
        _ => Err("is entity:id, where the entity is user, agent or lifeform".to_owned()),
    }
}

/// The visibility of a record, in the terms of older records. It is derived from the scopes and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// One user or agent may see the record.
    Private,
    /// A project, a team, or several scopes may see the record.
    Shared,
    /// An organization may see the record.
    Org,
    /// Everybody may see the record.
    Public,
}

impl Visibility {
    /// Returns the visibility of a record with these scopes.
    pub fn of(scopes: &[String]) -> Self {
        let nearness = |wanted: usize| scopes.iter().any(|scope| distance(scope) == wanted);
        match () {
            () if nearness(5) => Self::Public,
            () if nearness(4) => Self::Org,
            () if nearness(1) || nearness(3) || scopes.len() > 1 => Self::Shared,
            () => Self::Private,
        }
    }

    /// Returns the scopes for a visibility and an owner, with a warning if the visibility is ambiguous.
    pub(crate) fn scopes(word: &str, owner: &str, by: &Principal, warnings: &mut Vec<String>) -> Option<Vec<String>> {
        match word {
            "private" => Some(vec![owner.to_owned()]),
            "shared" | "org" => {
                let mut orgs = by.scopes.iter().map(|scope| &*scope.0).filter(|scope| scope.starts_with("org:"));
                let Some(org) = orgs.next() else {
                    warnings.push(format!("visibility is {word} and {} is in no org: only its owner sees it", by.id));
                    return Some(vec![owner.to_owned()]);
                };
                if orgs.next().is_some() {
                    warnings.push(format!("visibility is {word} and {} is in several: {org} sees it", by.id));
                }
                Some(vec![org.to_owned()])
            }
            "public" | "network" => Some(vec![PUBLIC.to_owned()]),
            _ => None,
        }
    }
}
