//! The canvases of a lifeform, and its memberships on canvases of other lifeforms.

use std::sync::Arc;

use store::{Batch, Expect, Hash, Key, Kind, Origin, PrincipalId, Store, Timestamp};

use super::{Lifeforms, OPENINGS};
use crate::LifeformError;
use crate::attention::{Reading, reading_key};
use crate::canvas::{CHAT, Canvas, CanvasHead, CanvasId, Kind as CanvasKind, Refusal, UnloadedMembers};
use crate::spec::LifeformId;

/// The number of canvases in memory, and the approximate size of unused ones in bytes, above which unused ones are
/// evicted.
const LOADED_MAX: usize = 256;
const LOADED_BYTES_MAX: usize = 64 << 20;
/// The maximum number of canvases of one lifeform.
const CANVASES_MAX: usize = 100;
/// The maximum number of canvases that one participant may create for a lifeform.
const CANVASES_EACH_MAX: usize = CANVASES_MAX / 4;
/// The maximum number of members of a canvas, and of memberships of a lifeform.
const MEMBERS_MAX: usize = 64;

impl Lifeforms {
    /// Returns the chat canvas that a lifeform has from birth.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn canvas(&self, id: &LifeformId) -> Result<Canvas, LifeformError> {
        match self.named_canvas(id, &CHAT.into()).await {
            Err(LifeformError::NoCanvas(chat)) => {
                let origin = Origin::system("birth of a canvas");
                Canvas::make(&self.inner.store, id, &chat, CanvasKind::chat(), "chat", &origin).await?;
                self.named_canvas(id, &chat).await
            }
            found => found,
        }
    }

    /// Ends all sessions of a principal on all canvases, and shows that it has left.
    pub fn show_gone(&self, who: &PrincipalId) {
        self.inner.canvases().values().for_each(|canvas| canvas.leave_all(who));
    }

    /// Returns the canvas with a given id.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::NoCanvas`].
    pub async fn named_canvas(&self, id: &LifeformId, canvas: &CanvasId) -> Result<Canvas, LifeformError> {
        let name = (id.clone(), canvas.clone());
        let is_open = || self.inner.canvases().get(&name).cloned();
        if let Some(canvas) = is_open() {
            return Ok(canvas);
        }
        // Concurrent requests load a canvas once, because it may be large.
        let _one = self.opening(&name).await;
        if let Some(canvas) = is_open() {
            return Ok(canvas);
        }
        let members = members_under(&self.inner.store, &format!("of/{id}/{canvas}/")).await?;
        let members = members.into_iter().map(|(member, _)| member);
        let unloaded_members = UnloadedMembers::new(members.chain([id.clone()]), self.inner.alarm.clone());
        let host = self.versioned(id).await?.0.definition.name;
        let (store, limits) = (self.inner.store.clone(), self.inner.limits);
        let opened = Canvas::open(store, id, &host, canvas.clone(), limits, unloaded_members).await?;
        self.evict_idle_canvases();
        let opened = opened.map(|opened| self.inner.canvases().entry(name.clone()).or_insert(opened).clone());
        // A lifeform that was terminated in the meantime has no canvases.
        if let Err(error) = self.versioned(id).await {
            let gone = self.inner.canvases().remove(&name);
            gone.into_iter().for_each(|canvas| canvas.close());
            return Err(error);
        }
        opened.ok_or_else(|| LifeformError::NoCanvas(canvas.clone()))
    }

    /// Evicts the canvases that nothing uses, if many or large ones are in memory. A canvas is loaded again when it is
    /// needed.
    pub fn evict_idle_canvases(&self) {
        let mut canvases = self.inner.canvases();
        let idle = canvases.values().filter(|canvas| canvas.is_idle());
        let bytes: usize = idle.map(|canvas| canvas.snapshot().state.bytes()).sum();
        if canvases.len() >= LOADED_MAX || bytes > LOADED_BYTES_MAX {
            canvases.retain(|_, canvas| !canvas.is_idle());
        }
    }

    async fn opening(&self, (id, canvas): &(LifeformId, CanvasId)) -> tokio::sync::MutexGuard<'_, ()> {
        let place = usize::from(Hash::of(format!("{id}/{canvas}").as_bytes()).0[0]) % OPENINGS;
        self.inner.opening[place].lock().await
    }

    /// Creates a canvas. If one with this id and kind exists, returns it.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`]. [`LifeformError::Refused`] if the id is invalid or used by another kind, or if the
    /// lifeform has the maximum number of canvases.
    pub async fn create_canvas(
        &self,
        origin: &Origin,
        id: &LifeformId,
        canvas: &CanvasId,
        kind: CanvasKind,
        title: &str,
    ) -> Result<Canvas, LifeformError> {
        let refused = |path: &str, message: String| LifeformError::Refused(Refusal::schema(path, message));
        neurons::spec::check_id(canvas).map_err(|message| refused("id", message))?;
        if title.trim().is_empty() || title.chars().count() > 200 {
            return Err(refused("title", "a title is 1 to 200 characters".into()));
        }
        // The chat is created with the first look at it.
        self.canvas(id).await?;
        let _creates = self.inner.joining.lock().await;
        let known = self.canvases(id).await?;
        if known.len() >= CANVASES_MAX && !known.iter().any(|(name, ..)| name == canvas) {
            return Err(refused("id", format!("a lifeform has at most {CANVASES_MAX} canvases")));
        }
        let own = known.iter().filter(|(_, head, _)| head.by.as_ref() == Some(&origin.principal.id)).count();
        if own >= CANVASES_EACH_MAX && origin.principal.is_bound() {
            let why = format!("one principal makes at most {CANVASES_EACH_MAX} canvases of a lifeform");
            return Err(LifeformError::Refused(Refusal::State(why)));
        }
        Canvas::make(&self.inner.store, id, canvas, kind, title, origin).await?;
        let made = self.named_canvas(id, canvas).await?;
        if let Some(handle) = self.inner.alive().get(id) {
            handle.join(made.clone());
        }
        Ok(made)
    }

    /// Returns the canvases of a lifeform with their revisions, the chat first, then by age. Of these it loads
    /// the chat alone, which it creates if there is none.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`].
    pub async fn canvases(&self, id: &LifeformId) -> Result<Vec<(CanvasId, CanvasHead, u64)>, LifeformError> {
        self.canvas(id).await?;
        self.canvases_of(id).await
    }

    pub(super) async fn canvases_of(&self, id: &LifeformId) -> Result<Vec<(CanvasId, CanvasHead, u64)>, LifeformError> {
        let prefix = format!("{id}/");
        let heads = self.inner.store.documents::<CanvasHead>(Kind::Canvas, &prefix, CANVASES_MAX + 1).await?;
        let mut canvases = Vec::new();
        for (name, head) in heads {
            let Some(canvas) = name.strip_prefix(&prefix) else { break };
            let rev = self.inner.store.head(&format!("canvas:{name}").into()).await?;
            canvases.push((CanvasId::from(canvas), head.value, rev));
        }
        canvases.sort_by_key(|(name, head, _)| (&**name != CHAT, head.made_at));
        Ok(canvases)
    }

    /// Adds a lifeform as a member of another lifeform's canvas. The member perceives messages from now on and answers
    /// when it is addressed. An existing membership stays unchanged.
    ///
    /// # Errors
    /// [`LifeformError::NotFound`], [`LifeformError::NoCanvas`]. [`LifeformError::Refused`] for a lifeform's own
    /// canvas, or at the maximum number of members or memberships.
    pub async fn join(&self, origin: &Origin, canvas: &Canvas, member: &LifeformId) -> Result<(), LifeformError> {
        self.get(member).await?;
        let refused = |why: String| Err(LifeformError::Refused(Refusal::State(why)));
        if canvas.name().starts_with(&format!("{member}/")) {
            return refused("a lifeform takes part in its own canvases anyway".into());
        }
        // Concurrent requests are counted one after the other.
        let _joins = self.inner.joining.lock().await;
        let known = self.members(canvas).await?;
        if known.iter().any(|(known, _)| known == member) {
            return Ok(());
        }
        if known.len() >= MEMBERS_MAX || self.memberships(member).await?.len() >= MEMBERS_MAX {
            return refused(format!("a canvas has at most {MEMBERS_MAX} members, and a lifeform as many memberships"));
        }
        let since = self.inner.store.clock().now();
        let [of_member, of_canvas] = membership(canvas.name(), member);
        // The member does not perceive earlier messages. Later messages wake it.
        canvas.unloaded_members().sleeps(member).await;
        let reading = Reading { upto: canvas.rev(), ..Reading::default() };
        let joined = Batch::new(origin).put(of_member, &since).put(of_canvas, &since);
        self.inner.store.commit(joined.put(reading_key(member, canvas.name()), &reading)).await?;
        if let Some(handle) = self.inner.alive().get(member) {
            handle.join(canvas.clone());
        }
        Ok(())
    }

    /// Removes a member from a canvas.
    ///
    /// # Errors
    /// [`LifeformError::Refused`] if the lifeform is not a member.
    pub async fn leave(&self, origin: &Origin, canvas: &Canvas, member: &LifeformId) -> Result<(), LifeformError> {
        let [_, of_canvas] = membership(canvas.name(), member);
        if self.inner.store.document::<Timestamp>(&of_canvas).await?.is_none() {
            return Err(LifeformError::Refused(Refusal::Missing(format!("member {member}"))));
        }
        self.inner.store.commit(without_member(Batch::new(origin), canvas.name(), member)).await?;
        canvas.unloaded_members().reads(member).await;
        if let Some(handle) = self.inner.alive().get(member) {
            handle.leave(canvas.name());
        }
        Ok(())
    }

    /// Returns the members of a canvas, with the times of joining.
    ///
    /// # Errors
    /// A store error.
    pub async fn members(&self, canvas: &Canvas) -> Result<Vec<(LifeformId, Timestamp)>, LifeformError> {
        members_under(&self.inner.store, &format!("of/{}/", canvas.name())).await
    }

    /// Returns the canvases of other lifeforms of which a lifeform is a member, as `{lifeform}/{canvas}`.
    pub(super) async fn memberships(&self, id: &LifeformId) -> Result<Vec<(Arc<str>, Timestamp)>, LifeformError> {
        members_under(&self.inner.store, &format!("in/{id}/")).await
    }

    /// Returns the canvases on which a lifeform listens: its own, and those of which it is a member.
    pub(super) async fn taken_part_in(&self, id: &LifeformId) -> Result<Vec<Canvas>, LifeformError> {
        let mut canvases = Vec::new();
        for (name, ..) in self.canvases(id).await? {
            canvases.push(self.named_canvas(id, &name).await?);
        }
        for (name, _) in self.memberships(id).await? {
            let Some((owner, canvas)) = name.split_once('/') else { continue };
            match self.named_canvas(&owner.into(), &canvas.into()).await {
                Ok(canvas) => canvases.push(canvas),
                // The owner of the canvas was terminated.
                Err(LifeformError::NotFound(_) | LifeformError::NoCanvas(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(canvases)
    }
}

/// Returns the members of a canvas, or the canvases of a member, by the prefix of their keys, with the times of
/// joining.
pub(crate) async fn members_under(store: &Store, prefix: &str) -> Result<Vec<(Arc<str>, Timestamp)>, LifeformError> {
    let found = store.documents::<Timestamp>(Kind::Member, prefix, MEMBERS_MAX).await?;
    let under = found.into_iter().map_while(|(key, since)| Some((key.strip_prefix(prefix)?.into(), since.value)));
    Ok(under.collect())
}

/// Adds the removal of a member from a canvas to a batch.
pub(super) fn without_member(batch: Batch, canvas: &str, member: &str) -> Batch {
    let [of_member, of_canvas] = membership(canvas, member);
    let batch = batch.delete(of_member, Expect::Any).delete(of_canvas, Expect::Any);
    batch.delete(reading_key(member, canvas), Expect::Any)
}

/// Returns the two keys of a membership: by the lifeform, and by the canvas.
fn membership(canvas: &str, member: &str) -> [Key; 2] {
    [Key::new(Kind::Member, format!("in/{member}/{canvas}")), Key::new(Kind::Member, format!("of/{canvas}/{member}"))]
}
