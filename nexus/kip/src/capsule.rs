//! Capsules as files (K10): a first line with name, version and the SHA-256 of the rest, followed by UPSERT
//! statements.

use sha2::{Digest, Sha256};

use crate::lang::error::syntax;
use crate::lang::{KipError, Span};

/// The first line of a capsule.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Header {
    /// The capsule's name.
    pub name: String,
    /// The capsule's version.
    pub version: String,
    /// The SHA-256 of the text after the first line, in hexadecimal.
    pub sha256: String,
}

const BEGINS: &str = "// kip-capsule: ";

/// Prepends the header to a capsule's text.
///
/// ```
/// use kip::capsule::{open, seal};
/// let capsule = seal("ships", "1.0.0", "UPSERT { CONCEPT { {type: \"Domain\", name: \"Ships\"} } }");
/// assert_eq!(open(&capsule).unwrap().unwrap().name, "ships");
/// ```
pub fn seal(name: &str, version: &str, text: &str) -> String {
    format!("{BEGINS}{name}@{version} sha256={}\n{text}", hash(text))
}

fn hash(text: &str) -> String {
    use std::fmt::Write;
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Parses the header of a capsule and checks it against the text; `None` for a text without a header.
///
/// # Errors
/// `syntax` for a header that is malformed or does not match the text.
///
/// ```
/// use kip::capsule::{open, seal};
/// let capsule = seal("ships", "1.0.0", "UPSERT { }");
/// assert!(open(&format!("{capsule} // changed")).is_err());
/// assert_eq!(open("UPSERT { }").unwrap(), None);
/// ```
pub fn open(text: &str) -> Result<Option<Header>, KipError> {
    let Some(rest) = text.strip_prefix(BEGINS) else { return Ok(None) };
    let (line, body) = rest.split_once('\n').unwrap_or((rest, ""));
    let span = Span::new(0, BEGINS.len() + line.len());
    let fields = line.trim().split_once(" sha256=").and_then(|(who, sum)| Some((who.rsplit_once('@')?, sum.trim())));
    let Some(((name, version), sum)) = fields else {
        return Err(syntax("the first line of a capsule reads // kip-capsule: name@version sha256=…", span));
    };
    let found = hash(body);
    if !found.eq_ignore_ascii_case(sum) {
        return Err(syntax(format!("the capsule {name}@{version} was changed: its text has sha256 {found}"), span)
            .hint("take it again from where it came, or leave the first line out to import it as your own"));
    }
    Ok(Some(Header { name: name.to_owned(), version: version.to_owned(), sha256: found }))
}
