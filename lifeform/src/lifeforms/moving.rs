//! A lifeform leaves as an archive, and comes as one.

use std::sync::Arc;

use store::{Kind, Origin, StoreError};
use tokio::fs::File;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader, BufWriter,
};

use super::standing::close_speech;
use super::{Inner, Lifeforms};
use crate::LifeformError;
use crate::archive::{Imported, LINE_BYTES_MAX, Reader, Writer};
use crate::canvas::Refusal;
use crate::life::Head;
use crate::spec::LifeformId;

/// Marks of jobs that are looked at.
const MARKS: usize = 4_096;
/// Bytes of one archive.
const ARCHIVE_BYTES_MAX: u64 = 16 << 30;

fn io(error: std::io::Error) -> LifeformError {
    StoreError::Io(error.to_string()).into()
}

impl Lifeforms {
    /// A whole lifeform as an archive, in a file without a name. It rests while that is written, and goes on then.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], the store's own.
    pub async fn archive(&self, id: &LifeformId) -> Result<File, LifeformError> {
        let (this, id) = (self.clone(), id.clone());
        // If the caller disconnects, the lifeform wakes again all the same.
        let written = tokio::spawn(async move { this.rest_and_write(&id).await });
        written.await.map_err(|panic| LifeformError::Died(panic.to_string()))?
    }

    async fn rest_and_write(&self, id: &LifeformId) -> Result<File, LifeformError> {
        let _one = self.standing(id).await;
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
        if was_awake && let Err(error) = self.live(id).await {
            tracing::error!(lifeform = %id, %error, "it cannot wake after its archive was written");
            self.inner.alarm.call(id);
        }
        written
    }

    /// Returns `true` if a job of the lifeform runs a fascicle as a tool: that job has no name of its own, and would
    /// run again elsewhere.
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

    /// Takes in a lifeform from an archive. It is stopped: a start wakes it. What is cut short or damaged leaves
    /// nothing that is seen.
    ///
    /// # Errors
    /// [`LifeformError::Spec`] naming the line and what is wrong with it; [`LifeformError::Refused`] when it lives
    /// here.
    pub async fn import(&self, origin: &Origin, archive: impl AsyncRead + Unpin) -> Result<Imported, LifeformError> {
        // A slow sender delays nobody.
        let mut archive = BufReader::new(spool(archive).await?);
        let (this, origin) = (self.clone(), origin.clone());
        // If the caller disconnects, the import completes all the same.
        let taken_in = tokio::spawn(async move {
            let id = Reader::names(&next_line(&mut archive).await?)?;
            // Once to see what it is, and once to take it in.
            this.read(&mut archive, &origin, false).await?;
            let _one = this.standing(&id).await;
            let reader = this.read(&mut archive, &origin, true).await?;
            this.take_in(id, reader).await
        });
        taken_in.await.map_err(|panic| LifeformError::Died(panic.to_string()))?
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

    async fn take_in(&self, id: LifeformId, reader: Reader) -> Result<Imported, LifeformError> {
        let imported = reader.finish().await?;
        self.inner.nexus.forget(&id);
        self.inner.canvases().retain(|(of, _), _| *of != id);
        self.inner.lived().remove(&id);
        // What others were saying on its canvases is not said on.
        let me = format!("lifeform:{id}");
        for (name, ..) in self.canvases_of(&id).await? {
            let canvas = self.named_canvas(&id, &name).await?;
            close_speech(&canvas, |sender| sender != me, "it was being said when this was archived").await;
        }
        Ok(imported)
    }
}

/// A file without a name.
async fn file() -> Result<File, LifeformError> {
    let file = tokio::task::spawn_blocking(tempfile::tempfile).await.map_err(|_| StoreError::Closed)?;
    Ok(File::from_std(file.map_err(io)?))
}

/// All of an archive in a file.
async fn spool(archive: impl AsyncRead + Unpin) -> Result<File, LifeformError> {
    let mut file = file().await?;
    // Whoever sends it may go away.
    let cut = |error: std::io::Error| LifeformError::Spec(format!("the archive cannot be read: {error}"));
    let bytes = tokio::io::copy(&mut archive.take(ARCHIVE_BYTES_MAX), &mut file).await.map_err(cut)?;
    if bytes == ARCHIVE_BYTES_MAX {
        return Err(LifeformError::Spec(format!("an archive has at most {ARCHIVE_BYTES_MAX} bytes")));
    }
    file.rewind().await.map_err(io)?;
    Ok(file)
}

/// The next line with its end; nothing at the end.
async fn next_line(archive: &mut (impl AsyncBufRead + Unpin)) -> Result<Vec<u8>, LifeformError> {
    let mut line = Vec::new();
    let mut bounded = archive.take(LINE_BYTES_MAX as u64);
    bounded.read_until(b'\n', &mut line).await.map_err(io)?;
    match line.len() < LINE_BYTES_MAX {
        true => Ok(line),
        false => Err(LifeformError::Spec(format!("a line of an archive has at most {LINE_BYTES_MAX} bytes"))),
    }
}
