//! The attachments of a canvas: files that its messages reference by their hash.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use store::{Batch, Hash, Origin, StoreError};
use tokio::time::Instant;

use super::Canvas;
use crate::LifeformError;

/// The description of an uploaded attachment that messages of the canvas may reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Attachment)]
pub struct Upload {
    /// The SHA-256 hash of the content, in hexadecimal.
    pub hash: Arc<str>,
    /// The media type that the uploader named.
    pub media_type: String,
    /// The size in bytes.
    pub bytes: u64,
}

impl Canvas {
    /// Stores an attachment for messages, once, under its hash.
    ///
    /// # Errors
    /// [`Refusal::Rate`](crate::canvas::Refusal::Rate) if the writer has used up its upload allowance; otherwise a store error.
    pub async fn attach(&self, body: Bytes, media_type: &str, origin: &Origin) -> Result<Upload, LifeformError> {
        let bytes = body.len() as u64;
        let who = &origin.principal.id;
        let may = {
            let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
            uploads.take(who, 1, body.len(), &self.limits, Instant::now())
        };
        may.map_err(LifeformError::Refused)?;
        let mut batch = Batch::new(origin);
        let hash = batch.payload(body).hex();
        let kept = Upload { hash: hash.as_str().into(), media_type: media_type.to_owned(), bytes };
        match self.log.store.commit(batch.create(self.log.attachment(&hash), &kept)).await {
            Ok(_) => Ok(kept),
            // The first uploader of this content named its media type.
            Err(StoreError::Conflict { .. }) => {
                let known = self.log.store.document::<Upload>(&self.log.attachment(&hash)).await?;
                Ok(known.map_or(kept, |known| known.value))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the media type and the content of an attachment of this canvas.
    ///
    /// # Errors
    /// A store error.
    pub async fn attachment(&self, hash: &str) -> Result<Option<(String, Bytes)>, LifeformError> {
        let Some(kept) = self.log.store.document::<Upload>(&self.log.attachment(hash)).await? else { return Ok(None) };
        let Some(hash) = Hash::parse(&kept.value.hash) else { return Ok(None) };
        Ok(self.log.store.payload(&hash).await?.map(|body| (kept.value.media_type, body)))
    }
}
