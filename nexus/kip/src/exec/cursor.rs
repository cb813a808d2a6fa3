//! Cursors. A token holds the position of the last row in the total order of the answer instead of its number. The
//! next page therefore begins after that row, whatever was written in between.

use std::hash::{DefaultHasher, Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::text_of;
use crate::lang::ast::Placed;
use crate::lang::{ErrorKind, KipError};

#[derive(Serialize, Deserialize)]
struct Token<P> {
    /// The hash of the query.
    q: u64,
    /// The position.
    p: P,
    /// A checksum over both, which detects a mistyped token.
    c: u64,
}

fn hash(text: &str) -> u64 {
    // The keys are fixed, because a token remains valid after the process ends.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns the token for a position in the answer to `query`.
pub(super) fn token<P: Serialize>(query: &str, place: &P) -> String {
    let text = serde_json::to_string(place).unwrap_or_default();
    let token = Token { q: hash(query), p: place, c: hash(&format!("{query}\n{text}")) };
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

/// Returns the position in a token of the same query.
///
/// # Errors
/// `parameter` for an invalid token, or a token of another query (R30).
pub(super) fn place<P: DeserializeOwned + Serialize>(
    query: &str,
    cursor: Option<&Placed<'_>>,
) -> Result<Option<P>, KipError> {
    let Some((lit, span)) = cursor else { return Ok(None) };
    let wrong = |what: &str| {
        Err(KipError::new(ErrorKind::Parameter, what).at(*span).hint("give next_cursor of the page before, unchanged"))
    };
    let token = text_of(lit, "a cursor", *span)?;
    let decoded = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| serde_json::from_slice::<Token<P>>(&bytes).ok());
    let Some(token) = decoded else { return wrong("this is no cursor of this nexus") };
    if token.q != hash(query) {
        return wrong("this cursor belongs to another query");
    }
    let text = serde_json::to_string(&token.p).unwrap_or_default();
    if token.c != hash(&format!("{query}\n{text}")) {
        return wrong("this is no cursor of this nexus");
    }
    Ok(Some(token.p))
}
