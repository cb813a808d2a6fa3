//! A typed view of the users of a canvas.

use serde_json::Value;

use super::State;
use super::state::escape;

/// A user: a principal that wrote on the canvas, or whose words a lifeform brought onto it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserView<'s>(&'s Value);

impl<'s> UserView<'s> {
    /// Returns the id of the principal.
    pub(crate) fn id(self) -> Option<&'s str> {
        self.0["id"].as_str()
    }

    /// Returns the display name.
    pub(crate) fn name(self) -> Option<&'s str> {
        self.0["name"].as_str()
    }
}

/// Returns the users of a canvas.
pub(crate) fn users_in(state: &State) -> impl Iterator<Item = UserView<'_>> {
    state.children("/users").map(UserView)
}

/// Returns the display name of a principal on a canvas, if it has one there.
pub(crate) fn name_in<'s>(state: &'s State, who: &str) -> Option<&'s str> {
    state.get(&format!("/users/{}", escape(who))).map(UserView)?.name()
}
