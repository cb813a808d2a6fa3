//! The Cognitive Nexus: KIP v1.0-draft7 over a resident graph, and the store under everything
//! a lifeform must not forget (MISSION rows K1–K13).
//!
//! Outside this crate a caller holds two handles: [`Store`], the one way to write state, and
//! [`Nexus`], the one door for KIP. Everything else here is plain functions and plain data.

pub mod clock;
pub mod event;
pub mod ledger;
pub mod nexus;
pub mod principal;
pub mod secrets;
pub mod shares;
pub mod store;
pub mod turns;
pub mod vital;

pub use clock::{Clock, ManualClock, SystemClock, Timestamp};
pub use event::Event;
pub use kip;
pub use nexus::{
    COMMONS, EmbedError, Embedder, Export, Forgotten, HAS_SECRET_KEY, Mind, Nexus, NexusError, NexusId, OWNER_KEY,
    Outbox, Portable, RECORD_TYPES, Request, Right, SEAL_KEY, SHARED, SecretPolicy, Shelves, Sight, Snapshot, Version,
    check_element, may_write, versions_stream,
};
pub use principal::{Cause, Directory, NoDirectory, Origin, Principal, PrincipalId, PrincipalKind, Role, Scope};
pub use shares::{NoPlace, Place, Shares};
pub use store::{Batch, Store, StoreError};
pub use turns::{Turn, Turns, Wants};
pub use vital::vital;
