//! The taint of a job: whether it has read text that its owner does not trust.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The source of the untrusted text that a job has read. A later source is the graver one, and a job keeps the gravest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Taint {
    /// The job has read no untrusted text.
    #[default]
    Clean,
    /// Events that name the principals whose words they bear, in `behind` of their metadata.
    Quoted,
    /// A tool that read something outside this daemon. Nobody is named.
    Outside,
}

impl Taint {
    /// Returns the source of a fact that an earlier release wrote without one.
    pub(super) fn unknown() -> Self {
        Self::Outside
    }

    /// Returns `true` if the job has read untrusted text.
    pub fn is_tainted(self) -> bool {
        self != Self::Clean
    }
}
