//! Unit ids (MISSION P1) and their owners. The commit that assigns an id also stores its owner.

use store::{Batch, Key, Kind, Op, Origin};

use crate::draft::Body;
use crate::record::{Record, Status};
use crate::skill;
use crate::{Knowledge, KnowledgeError};

impl Knowledge {
    /// Checks that the unit ids in a body are free.
    pub(crate) async fn check_names(&self, body: &Body) -> Result<(), KnowledgeError> {
        for id in body.names() {
            if self.record_with_unit_id(&id).await?.is_some() {
                return Err(KnowledgeError::Conflict(format!("the id {id} is taken")));
            }
        }
        Ok(())
    }

    /// Returns the active record with a unit id.
    pub(crate) async fn record_with_unit_id(&self, name: &str) -> Result<Option<Record>, KnowledgeError> {
        let origin = Origin::system("whose a name is");
        match name.starts_with(skill::PREFIX) {
            true => self.find_skill(name, &origin).await,
            false => self.unit_that(name, &|status| status == Status::Active, &origin).await,
        }
    }

    /// Returns the record to which a unit id was assigned: `None` if it was never assigned, `Some(None)` if `origin`
    /// may not see the record or it was removed. The record may be deleted or merged.
    pub(crate) async fn named(&self, id: &str, origin: &Origin) -> Result<Option<Option<Record>>, KnowledgeError> {
        let Some(claim) = self.store.document::<String>(&Key::new(Kind::Unit, id)).await? else { return Ok(None) };
        match self.any(&claim.value, origin).await {
            Ok(record) => Ok(Some(Some(record))),
            Err(KnowledgeError::NotFound(_)) => Ok(Some(None)),
            Err(error) => Err(error),
        }
    }
}

/// Returns the operations that assign unit ids to a record. They are committed with the record.
pub(crate) fn claims(names: &[String], record: &str, origin: &Origin) -> Vec<Op> {
    let claim = |batch: Batch, name: &String| batch.put(Key::new(Kind::Unit, name.as_str()), record);
    names.iter().fold(Batch::new(origin), claim).ops
}
