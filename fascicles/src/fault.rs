//! The faults of a definition: the place, the reason, and a remedy.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

/// One fault in a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Fault {
    /// The place of the fault, such as `nodes[2].after[0].node`.
    pub path: String,
    /// The reason why the definition is refused.
    pub reason: String,
    /// The change that removes the fault.
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
