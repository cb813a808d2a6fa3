//! A concurrency limit in which no principal takes more than its share of the places.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::principal::{Principal, PrincipalId};

/// The divisor for the reserve: one place in this many is reserved for operators, the daemon and lifeforms.
const KEPT: usize = 8;

/// Places for concurrent work: sockets, jobs, invocations. A cheap handle; all clones share the places.
#[derive(Clone)]
pub struct Shares {
    all: Arc<Semaphore>,
    each: usize,
    kept: usize,
    taken: Taken,
}

/// The number of places that each principal holds.
type Taken = Arc<Mutex<HashMap<PrincipalId, usize>>>;

/// The reason why a place was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// The principal has used up its share.
    Share,
    /// All places are taken.
    All,
}

/// One or more places; dropping the value returns them.
pub struct Place {
    _permit: OwnedSemaphorePermit,
    places: usize,
    of: Option<(PrincipalId, Taken)>,
}

impl Shares {
    /// Returns a limit of `places` places, of which one principal takes at most `each`. For operators, the daemon and
    /// the lifeforms of this daemon, only the total applies.
    pub fn new(places: usize, each: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(places)), each, kept: places / KEPT, taken: Arc::default() }
    }

    /// Takes a place for `principal` without waiting.
    ///
    /// # Errors
    /// [`NoPlace`].
    ///
    /// ```
    /// use store::{NoPlace, Principal, PrincipalKind, Role, Shares};
    /// let (places, ada) = (Shares::new(16, 2), Principal::new("user:ada", PrincipalKind::User, Role::Participant));
    /// let held = [places.take(&ada), places.take(&ada)];
    /// assert_eq!(places.take(&ada).err(), Some(NoPlace::Share));
    /// drop(held);
    /// assert!(places.take(&ada).is_ok());
    /// ```
    pub fn take(&self, principal: &Principal) -> Result<Place, NoPlace> {
        self.take_many(principal, 1)
    }

    /// Takes several places at once, or none. A request for more than a share is reduced to one share, so such work
    /// runs alone.
    ///
    /// # Errors
    /// [`NoPlace`].
    pub fn take_many(&self, principal: &Principal, places: usize) -> Result<Place, NoPlace> {
        let places = places.min(self.each);
        let permits = u32::try_from(places).unwrap_or(u32::MAX);
        let take = || self.all.clone().try_acquire_many_owned(permits).map_err(|_| NoPlace::All);
        if !principal.is_bound() {
            return Ok(Place { _permit: take()?, places, of: None });
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.get(&principal.id).copied().unwrap_or_default();
        if count + places > self.each {
            return Err(NoPlace::Share);
        }
        // Some places are reserved for principals without a share.
        if self.all.available_permits() < places + self.kept {
            return Err(NoPlace::All);
        }
        let permit = take()?;
        taken.insert(principal.id.clone(), count + places);
        Ok(Place { _permit: permit, places, of: Some((principal.id.clone(), self.taken.clone())) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((id, taken)) = self.of.take() else { return };
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&id) {
            Some(count) if *count > self.places => *count -= self.places,
            _ => drop(taken.remove(&id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::{PrincipalKind, Role};

    #[test]
    fn no_participant_takes_more_than_its_share_of_the_places() {
        let shares = Shares::new(4, 2);
        let user = |id: &str, role| Principal::new(id, PrincipalKind::User, role);
        let (ada, bob) = (user("user:ada", Role::Participant), user("user:bob", Role::Observer));
        let first = shares.take(&ada).unwrap();
        let _second = shares.take(&ada).unwrap();
        assert_eq!(shares.take(&ada).err(), Some(NoPlace::Share));
        let _third = shares.take(&bob).unwrap();
        let _fourth = shares.take(&user("user:operator", Role::Operator)).unwrap();
        assert_eq!(shares.take(&bob).err(), Some(NoPlace::All));
        drop(first);
        assert!(shares.take(&ada).is_ok());
        drop(_second);
        assert!(shares.taken.lock().unwrap().get(&ada.id).is_none());
    }
}
