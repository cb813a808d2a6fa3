//! The changes that a lifeform passed over since it was woken, for the people who ask why it did nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use store::Timestamp;
use utoipa::ToSchema;

/// The maximum number of changes that are shown.
const SHOWN_MAX: usize = 100;

/// A change that a rule passed over.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PassedOver {
    /// The reference of the change, `canvas:{lifeform}/{canvas}@{revision}`.
    #[schema(value_type = String)]
    pub source: Arc<str>,
    /// The wire name of its op.
    #[schema(value_type = String)]
    pub op: Arc<str>,
    /// The rule.
    #[schema(value_type = String)]
    pub rule: Arc<str>,
    /// The time of the change.
    pub at: Timestamp,
}

/// The number of changes that a lifeform passed over since it was woken, and the last 100 of them, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Passed {
    /// The number.
    pub passed: u64,
    /// The last ones.
    #[schema(value_type = Vec<PassedOver>)]
    pub last: VecDeque<PassedOver>,
    /// The fault of the fascicle that the definition names, if the shipped rules decide instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// The passed changes of a running lifeform, shared with readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct PassLog(Arc<Mutex<Passed>>);

impl PassLog {
    fn known(&self) -> MutexGuard<'_, Passed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change.
    pub(crate) fn add(&self, passed: PassedOver) {
        let mut known = self.known();
        known.passed += 1;
        if known.last.len() == SHOWN_MAX {
            known.last.pop_front();
        }
        known.last.push_back(passed);
    }

    /// Stores the present fault of the rules. Returns `true` if it is new.
    pub(crate) fn set_fault(&self, fault: Option<&str>) -> bool {
        let mut known = self.known();
        let is_new = fault.is_some() && known.fault.as_deref() != fault;
        if known.fault.as_deref() != fault {
            known.fault = fault.map(str::to_owned);
        }
        is_new
    }

    /// Returns what is known now.
    pub(crate) fn shown(&self) -> Passed {
        self.known().clone()
    }
}
