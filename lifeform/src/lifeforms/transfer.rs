//! The export of a lifeform to an archive, and the import from one.

use std::sync::Arc;

use store::{Kind, Origin, StoreError};
use tokio::fs::File;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader, BufWriter,
};

use super::lifecycle::close_speech;
use super::{Inner, Lifeforms};
use crate::LifeformError;
use crate::archive::{Imported, LINE_BYTES_MAX, Reader, Writer};
use crate::canvas::Refusal;
use crate::life::Head;
use crate::spec::LifeformId;

/// The maximum number of job markers that are read.
const MARKS: usize = 4_096;
/// The maximum size of an archive, in bytes.
const ARCHIVE_BYTES_MAX: u64 = 16 << 30;

fn io(error: std::io::Error) -> LifeformError {
    StoreError::Io(error.to_string()).into()
}

impl Lifeforms {
    /// Writes a lifeform as an archive to an unnamed file. The lifeform is halted during the export and continues after
    /// it.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], or a store error.
    pub async fn archive(&self, id: &LifeformId) -> Result<File, LifeformError> {
        let (this, id) = (self.clone(), id.clone());
        // If the caller disconnects, the lifeform still wakes again.
        let written = tokio::spawn(async move { Box::pin(this.rest_and_write(&id)).await });
        written.await.map_err(|panic| LifeformError::Died(panic.to_string()))?
    }

    async fn rest_and_write(&self, id: &LifeformId) -> Result<File, LifeformError> {
        let _one = self.lifecycle_lock(id).await;
        let (head, _) = self.versioned(id).await?;
        let handle = self.inner.alive().get(id).filter(|handle| handle.is_alive()).cloned();
        let was_awake = handle.is_some();
        if let Some(handle) = handle {
            self.inner.alive().remove(id);
            self.inner.heartbeat.stop(id);
            handle.halt().await;
        }
        let written = match self.calls_fascicles(id).await {
            Ok(false) => self.written(&head).await,
            Ok(true) => Err(LifeformError::Refused(Refusal::State(
                "it is using a fascicle as a tool just now: try again when that has come to its end".into(),
            ))),
            Err(error) => Err(error),
        };
        if was_awake && let Err(error) = self.ensure_running(id).await {
            tracing::error!(lifeform = %id, %error, "it cannot wake after its archive was written");
            self.inner.alarm.call(id);
        }
        written
    }

    /// Returns `true` if a job of the lifeform runs a fascicle as a tool. That inner job has no stable name, so it
    /// would run a second time after an import.
    async fn calls_fascicles(&self, id: &LifeformId) -> Result<bool, LifeformError> {
        let prefix = format!("lifeform:{id}/");
        let marks = self.inner.store.documents::<Arc<str>>(Kind::Running, &prefix, MARKS).await?;
        let mut ours = marks.iter().take_while(|(mark, _)| mark.starts_with(&prefix));
        Ok(ours.any(|(_, job)| !job.value.starts_with(&format!("{id}."))))
    }

    async fn written(&self, head: &Head) -> Result<File, LifeformError> {
        let (inner, mut out) = (&self.inner, BufWriter::new(file().await?));
        Writer::new(&mut out).write(&inner.store, &inner.nexus, &inner.fascicles, head).await?;
        out.flush().await.map_err(io)?;
        let mut file = out.into_inner();
        file.rewind().await.map_err(io)?;
        Ok(file)
    }

    /// Imports a lifeform from an archive. It is stopped until it is started. A truncated or damaged archive leaves
    /// nothing visible.
    ///
    /// # Errors
    /// [`LifeformError::Spec`] with the line number and the fault. [`LifeformError::Refused`] if the lifeform exists
    /// here.
    pub async fn import(&self, origin: &Origin, archive: impl AsyncRead + Unpin) -> Result<Imported, LifeformError> {
        // The archive is received completely first, so a slow sender blocks nobody.
        let mut archive = BufReader::new(spool(archive).await?);
        let (this, origin) = (self.clone(), origin.clone());
        // If the caller disconnects, the import still completes.
        let taken_in = tokio::spawn(async move {
            let id = Reader::names(&next_line(&mut archive).await?)?;
            // The first pass validates the archive, and the second one imports it.
            this.read(&mut archive, &origin, false).await?;
            let _one = this.lifecycle_lock(&id).await;
            this.check_admitted(&origin)?;
            let reader = this.read(&mut archive, &origin, true).await?;
            this.check_admitted(&origin)?;
            this.import_archive(id, reader).await
        });
        taken_in.await.map_err(|panic| LifeformError::Died(panic.to_string()))?
    }

    /// Refuses to go on for a principal whose last token was revoked meanwhile.
    fn check_admitted(&self, origin: &Origin) -> Result<(), LifeformError> {
        match self.inner.fascicles.neurons().is_admitted(&origin.principal.id) {
            true => Ok(()),
            false => Err(LifeformError::Spec(format!("the token of {} was revoked", origin.principal.id))),
        }
    }

    async fn read(
        &self,
        archive: &mut BufReader<File>,
        origin: &Origin,
        takes_in: bool,
    ) -> Result<Reader, LifeformError> {
        archive.rewind().await.map_err(io)?;
        let Inner { store, fascicles, .. } = &*self.inner;
        let mut reader = Reader::new(store.clone(), fascicles.clone(), origin.clone(), takes_in);
        loop {
            let line = next_line(archive).await?;
            if line.is_empty() {
                break;
            }
            reader.line(&line).await?;
        }
        match reader.is_whole() {
            true => Ok(reader),
            false => Err(LifeformError::Spec("the archive is cut short".into())),
        }
    }

    async fn import_archive(&self, id: LifeformId, reader: Reader) -> Result<Imported, LifeformError> {
        let imported = reader.finish().await?;
        self.inner.nexus.forget(&id);
        self.inner.canvases().retain(|(of, _), _| *of != id);
        self.inner.lived().remove(&id);
        // Messages that other lifeforms were writing on its canvases do not continue.
        let me = format!("lifeform:{id}");
        for (name, ..) in self.canvases_of(&id).await? {
            let canvas = self.named_canvas(&id, &name).await?;
            close_speech(&canvas, |sender| sender != me, "it was being said when this was archived").await;
        }
        Ok(imported)
    }
}

/// Creates an unnamed temporary file.
async fn file() -> Result<File, LifeformError> {
    let file = tokio::task::spawn_blocking(tempfile::tempfile).await.map_err(|_| StoreError::Closed)?;
    Ok(File::from_std(file.map_err(io)?))
}

/// Writes a received archive to a file.
async fn spool(archive: impl AsyncRead + Unpin) -> Result<File, LifeformError> {
    let mut file = file().await?;
    // The sender may disconnect.
    let cut = |error: std::io::Error| LifeformError::Spec(format!("the archive cannot be read: {error}"));
    let bytes = tokio::io::copy(&mut archive.take(ARCHIVE_BYTES_MAX), &mut file).await.map_err(cut)?;
    if bytes == ARCHIVE_BYTES_MAX {
        return Err(LifeformError::Spec(format!("an archive has at most {ARCHIVE_BYTES_MAX} bytes")));
    }
    file.rewind().await.map_err(io)?;
    Ok(file)
}

/// Returns the next line with its line ending; empty at the end.
async fn next_line(archive: &mut (impl AsyncBufRead + Unpin)) -> Result<Vec<u8>, LifeformError> {
    let mut line = Vec::new();
    let mut bounded = archive.take(LINE_BYTES_MAX as u64);
    bounded.read_until(b'\n', &mut line).await.map_err(io)?;
    match line.len() < LINE_BYTES_MAX {
        true => Ok(line),
        false => Err(LifeformError::Spec(format!("a line of an archive has at most {LINE_BYTES_MAX} bytes"))),
    }
}
