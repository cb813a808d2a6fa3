//! What is wrong with a definition: where, why, and what to write instead.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

/// One fault of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Fault {
    /// Where it is, as in `nodes[2].after[0].node`.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
    /// What would mend it.
    pub cure: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.path, self.reason, self.cure)
    }
}

/// All faults of a definition, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Fault::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}
