//! Brings a subscriber to the present revision.

use std::sync::Arc;

use bytes::Bytes;
use lifeform::canvas::{Frames, Snapshot};
use serde_json::json;
use store::Wants;

use super::{LARGE_BYTES, OPS_UNDER_WAY, PING_EVERY, Session, text};
use crate::api::answers;
use crate::api::ws::client::Resume;
use crate::api::ws::outbox::BYTES_MAX;
use crate::api::ws::{Closing, FRAME_BYTES_MAX};

impl Session {
    /// Sends `hello`, then the snapshot or the replay, then `live`. Returns the last revision that was sent.
    pub(super) async fn greet(&mut self) -> Result<u64, Closing> {
        let snapshot = self.canvas.snapshot();
        let Snapshot { epoch, rev, floor, .. } = &snapshot;
        let resume = self.resume.take();
        let why_not = |asked: &Resume| match asked {
            asked if asked.epoch != *epoch => Some("epoch_changed"),
            asked if asked.rev > *rev => Some("ahead_of_log"),
            asked if asked.rev < *floor => Some("log_trimmed"),
            _ => None,
        };
        let refused = resume.as_ref().and_then(why_not);
        let from = resume.filter(|_| refused.is_none()).map(|resume| resume.rev);
        let mode = if from.is_some() { "resume" } else { "snapshot" };
        let replay = from.map_or(0, |from| rev - from);
        self.put_json(json!({"t": "hello", "v": 1, "session": self.id, "canvas": self.canvas.id, "type": self.canvas.kind, "schema_ver": 1, "epoch": epoch, "rev": rev, "mode": mode, "replay": replay,
            "you": self.admitted.principal().id, "limits": {"frame": FRAME_BYTES_MAX, "queue": BYTES_MAX, "ops_under_way": OPS_UNDER_WAY}, "ping_s": PING_EVERY.as_secs()})).await?;
        if let Some(reason) = refused {
            self.put_json(json!({"t": "reset", "reason": reason, "epoch": epoch, "rev": rev})).await?;
        }
        let sent = match from {
            Some(from) => self.replay(from).await?,
            None => {
                let whole = self.whole(&snapshot).await?;
                self.place_for(whole.len())?;
                self.put(text(&whole)).await?;
                *rev
            }
        };
        if self.wants[1] {
            for present in self.canvas.present() {
                let frame =
                    json!({"t": "presence", "who": {"id": present.who}, "state": present.state, "ttl": present.ttl});
                self.put_json(frame).await?;
            }
        }
        self.put_json(json!({"t": "live", "rev": sent})).await?;
        Ok(sent)
    }

    /// Returns the frames for a subscriber that cannot resume: a reset and a snapshot.
    pub(super) async fn anew(&mut self, reason: &str) -> Result<(Arc<[Bytes]>, u64), Closing> {
        let snapshot = self.canvas.snapshot();
        let Snapshot { epoch, rev, .. } = &snapshot;
        let reset = json!({"t": "reset", "reason": reason, "epoch": epoch, "rev": rev});
        let whole = self.whole(&snapshot).await?;
        self.place_for(whole.len())?;
        Ok(([reset.to_string().into(), Bytes::clone(&whole)].into(), *rev))
    }

    /// Returns the snapshot frame for this subscriber. Subscribers that see the complete canvas share the frame of a
    /// revision while it is being sent. A frame is made in a turn of the expensive reads, as a whole canvas is over HTTP.
    pub(super) async fn whole(&mut self, snapshot: &Snapshot) -> Result<Arc<Bytes>, Closing> {
        let rev = snapshot.rev;
        if let Some(shared) = self.shared(rev) {
            return Ok(shared);
        }
        let principal = self.admitted.principal().clone();
        let _turn = match principal.is_bound() {
            true => Some(self.app.reads.take(Wants { class: (), who: principal.id.0.clone(), is_bound: true }).await),
            false => None,
        };
        // Another subscriber may have made it meanwhile.
        if let Some(shared) = self.shared(rev) {
            return Ok(shared);
        }
        let (view, snapshot) = (self.view.clone(), snapshot.clone());
        let made = tokio::task::spawn_blocking(move || {
            let Snapshot { epoch, rev, state, .. } = &snapshot;
            let state = view.state(state);
            let frame = json!({"t": "snapshot", "epoch": epoch, "rev": rev, "part": 1, "parts": 1, "state": state});
            Arc::new(Bytes::from(frame.to_string()))
        });
        let frame = made.await.map_err(|_| Closing::because(1011, "snapshot"))?;
        if self.view.is_whole() {
            self.canvas.share_whole(rev, &frame);
        }
        Ok(frame)
    }

    /// Returns the snapshot frame that other subscribers of the complete canvas share now.
    fn shared(&self, rev: u64) -> Option<Arc<Bytes>> {
        self.canvas.shared_whole(rev).filter(|_| self.view.is_whole())
    }

    /// Takes a permit for a large frame and holds it as long as the socket, because the socket keeps a buffer of this
    /// size.
    pub(super) fn place_for(&mut self, bytes: usize) -> Result<(), Closing> {
        if bytes > LARGE_BYTES.max(self.held) {
            self.place = None;
            let place = answers::take(&self.app.answers, self.admitted.principal(), bytes);
            self.place = Some(place.map_err(|_| Closing::because(4429, "too_many_snapshots"))?);
            self.held = bytes;
        }
        Ok(())
    }

    /// Returns the frames after `sent`, up to `upto`, for this subscriber, and the last revision in them.
    pub(super) async fn page(&mut self, sent: u64, upto: u64) -> Result<(Arc<[Bytes]>, u64), Closing> {
        match self.canvas.frames(sent).await {
            Ok(Frames::Deltas(mut frames)) => {
                frames.truncate(frames.partition_point(|frame| frame.rev <= upto));
                Ok((self.view.frames(&frames), frames.last().map_or(sent, |frame| frame.rev)))
            }
            Ok(Frames::Reset(reason)) => self.anew(reason).await,
            Err(_) => Err(Closing::because(1011, "store")),
        }
    }

    pub(super) async fn replay(&mut self, mut sent: u64) -> Result<u64, Closing> {
        loop {
            let (frames, rev) = self.page(sent, u64::MAX).await?;
            if frames.is_empty() {
                return Ok(sent);
            }
            for frame in &*frames {
                self.put(text(frame)).await?;
            }
            sent = rev;
        }
    }

    /// Queues the next deltas after `sent` up to the notified revision, and returns the last queued one. Subscribers
    /// that are notified together receive the same page and then have the same revision.
    pub(super) async fn page_of(&mut self, sent: u64, newest: u64) -> Result<u64, Closing> {
        let shared = if self.view.is_whole() { self.canvas.shared_page(sent) } else { None };
        let (frames, rev) = match shared {
            Some(page) => page,
            None => {
                let (frames, rev) = self.page(sent, newest).await?;
                if self.view.is_whole() && rev > sent {
                    self.canvas.share_page(sent, rev, frames.clone());
                }
                (frames, rev)
            }
        };
        frames.iter().try_for_each(|frame| self.outbox.push(text(frame)))?;
        Ok(rev)
    }
}
