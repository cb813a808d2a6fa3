//! Bearer tokens. Each token belongs to one principal and is stored as a hash.

use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rand::RngExt;
use store::{
    Batch, Directory, Expect, Hash, Key, Kind, Origin, Principal, PrincipalId, PrincipalKind, Role, Scope, Store,
};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};

use crate::config::Config;

/// The maximum number of scopes of one principal.
const SCOPES_MAX: usize = 64;
/// The length of a token's name, in characters.
const NAME_CHARS: usize = 12;
/// The minimum length of a token that an operator chooses, in characters.
const TOKEN_CHARS_MIN: usize = 16;

/// The lock for a change of tokens.
type Turn = OwnedMutexGuard<()>;

/// A cheap handle on the tokens of a daemon.
#[derive(Clone)]
pub struct Tokens {
    store: Store,
    by_hash: Arc<RwLock<HashMap<Hash, Principal>>>,
    /// `true` if clients without a token may read public content.
    is_open: bool,
    /// The number of token changes. Admitted principals watch it.
    changes: Arc<watch::Sender<u64>>,
    /// The lock for creating, changing and revoking tokens.
    turn: Arc<Mutex<()>>,
}

fn checked(scopes: &[String]) -> anyhow::Result<Vec<Scope>> {
    let check = |scope: &String| match knowledge::check_scope(scope) {
        Ok(()) => Ok(Scope(scope.as_str().into())),
        Err(what) => bail!("a scope {what}: \"{scope}\""),
    };
    if scopes.len() > SCOPES_MAX {
        bail!("a principal is in at most {SCOPES_MAX} scopes");
    }
    scopes.iter().map(check).collect()
}

fn fresh() -> String {
    let bytes: [u8; 24] = rand::rng().random();
    format!("lfd_{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// An admitted principal. It has the present rights of its token, and none after the token is revoked.
pub struct Admitted {
    tokens: Tokens,
    hash: Hash,
    principal: Principal,
    changes: watch::Receiver<u64>,
}

impl Admitted {
    /// Returns the principal as of the last check of its token.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Checks the token again; returns `false` if it was revoked.
    pub fn renew(&mut self) -> bool {
        self.changes.mark_unchanged();
        let known = self.tokens.by_hash.read().unwrap_or_else(PoisonError::into_inner).get(&self.hash).cloned();
        let is_known = known.is_some();
        self.principal = known.unwrap_or_else(Principal::anybody);
        is_known
    }

    /// Waits until the rights of the token change or the token is revoked. [`Self::renew`] is `false` after a
    /// revocation. Changes of other tokens are ignored.
    pub async fn changed(&mut self) {
        loop {
            if self.changes.changed().await.is_err() {
                return std::future::pending().await;
            }
            let before = self.principal.clone();
            if !self.renew() || self.principal != before {
                return;
            }
        }
    }
}

/// Returns the public name of a token: the beginning of its hash.
fn name_of(hash: &Hash) -> String {
    hash.hex()[..NAME_CHARS].to_owned()
}

impl Directory for Tokens {
    fn principal(&self, id: &str) -> Principal {
        self.whole(id)
    }

    fn least_principal(&self, id: &str) -> Principal {
        let mut least = self.whole(id);
        let tokens = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        for known in tokens.values().filter(|known| *known.id.0 == *id) {
            least.roles.retain(|role| known.may(*role));
        }
        least
    }

    fn is_guest(&self, id: &str) -> bool {
        let tokens = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        tokens.values().any(|known| known.guest && *known.id.0 == *id)
    }

    fn is_admitted(&self, id: &PrincipalId) -> bool {
        let needs_none = matches!(id.0.split_once(':'), Some(("lifeform" | "system", _)));
        needs_none || *id == Principal::anybody().id || self.has_one(&id.0)
    }
}

impl Tokens {
    /// Loads the tokens from `store`.
    ///
    /// # Errors
    /// A store error.
    pub async fn open(store: Store) -> anyhow::Result<Self> {
        let kept = store.documents::<Principal>(Kind::Token, "", 100_000).await?;
        // Tokens of folders of version 0.1.0 do not say that they are a guest's.
        let of_guest =
            |principal: Principal| Principal { guest: principal.kind == PrincipalKind::Lifeform, ..principal };
        let by_hash =
            kept.into_iter().filter_map(|(id, found)| Some((Hash::parse(&id)?, of_guest(found.value)))).collect();
        Ok(Self {
            store,
            by_hash: Arc::new(RwLock::new(by_hash)),
            is_open: false,
            changes: Arc::default(),
            turn: Arc::default(),
        })
    }

    /// Admits readers without a token to public content.
    #[must_use]
    pub fn with_anybody(self) -> Self {
        Self { is_open: true, ..self }
    }

    /// Returns the anonymous principal, if clients without a token may read public content.
    pub fn anybody(&self) -> Option<Principal> {
        self.is_open.then(Principal::anybody)
    }

    /// Returns the principal of a token. Only hashes are compared, so the response time reveals nothing about a token.
    pub fn principal(&self, token: &str) -> Option<Principal> {
        self.by_hash.read().unwrap_or_else(PoisonError::into_inner).get(&Hash::of(token.as_bytes())).cloned()
    }

    /// Admits the principal of a token for as long as the token is valid.
    pub fn admit(&self, token: &str) -> Option<Admitted> {
        let hash = Hash::of(token.as_bytes());
        let changes = self.changes.subscribe();
        let principal = self.by_hash.read().unwrap_or_else(PoisonError::into_inner).get(&hash).cloned()?;
        Some(Admitted { tokens: self.clone(), hash, principal, changes })
    }

    /// Returns the principal with this id and the combined rights of all its tokens.
    fn whole(&self, id: &str) -> Principal {
        let mut whole = match id.split_once(':') {
            Some(("system", _)) => return Principal::system(),
            // A lifeform of this daemon needs no token.
            Some(("lifeform", lifeform)) => Principal::lifeform(lifeform),
            _ => Principal::new(id, PrincipalKind::User, Role::Observer),
        };
        let tokens = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        for known in tokens.values().filter(|known| *known.id.0 == *id) {
            whole.roles.extend(&known.roles);
            whole.scopes.extend(known.scopes.iter().cloned());
        }
        whole
    }

    /// Creates a token for `id` in `role` and returns it. Only its hash is stored, so it cannot be shown again. All
    /// tokens of a principal have the same scopes, so a new token cannot add scopes.
    ///
    /// # Errors
    /// If the id is malformed, if the principal already has a token with other scopes, or if the store fails.
    pub async fn add(
        &self,
        origin: &Origin,
        id: &str,
        role: Role,
        scopes: &[String],
    ) -> anyhow::Result<(String, Principal)> {
        let (kind, _) = Principal::parse_id(id).map_err(anyhow::Error::msg)?;
        let kind = match kind {
            "lifeform" | "agent" => PrincipalKind::Lifeform,
            "system" => bail!("system principals have no tokens"),
            _ => PrincipalKind::User,
        };
        if id.strip_prefix("lifeform:") == Some(nexus::COMMONS) {
            bail!("{id} is no lifeform: its name is that of the commons");
        }
        let token = fresh();
        let mut principal = Principal { guest: kind == PrincipalKind::Lifeform, ..Principal::new(id, kind, role) };
        principal.scopes.extend(checked(scopes)?);
        let turn = self.turn.clone().lock_owned().await;
        if let Some(known) = self.of(id).into_iter().next().map(|(_, known)| known.scopes) {
            if !scopes.is_empty() && known != principal.scopes {
                let own = Principal::new(id, kind, role).scopes;
                let all: Vec<&str> = known.difference(&own).map(|scope| &*scope.0).collect();
                bail!(
                    "{id} is in [{}] with the token it has: `lifeformd token scopes {id} …` changes that",
                    all.join(", ")
                );
            }
            principal.scopes = known;
        }
        self.keep(turn, origin, &token, &principal).await?;
        Ok((token, principal))
    }

    /// Returns the tokens of a principal with their hashes.
    fn of(&self, id: &str) -> Vec<(Hash, Principal)> {
        let tokens = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        tokens.iter().filter(|(_, known)| *known.id.0 == *id).map(|(hash, known)| (*hash, known.clone())).collect()
    }

    /// Sets the scopes of a principal, besides its own scope and the public one. The change applies to all its tokens
    /// immediately. Returns the changed principal, or `None` if it has no token.
    ///
    /// # Errors
    /// If a scope is malformed, or the store fails.
    pub async fn set_scopes(&self, origin: &Origin, id: &str, scopes: &[String]) -> anyhow::Result<Option<Principal>> {
        let scopes = checked(scopes)?;
        let turn = self.turn.clone().lock_owned().await;
        let mut known = self.of(id);
        for (_, principal) in &mut known {
            principal.scopes = Principal::new(id, principal.kind, Role::Observer).scopes;
            principal.scopes.extend(scopes.iter().cloned());
        }
        let Some(changed) = known.last().map(|(_, principal)| principal.clone()) else { return Ok(None) };
        let put = |batch: Batch, (hash, principal): &(Hash, Principal)| {
            batch.put(Key::new(Kind::Token, hash.hex()), principal)
        };
        let batch = known.iter().fold(Batch::new(origin), put);
        self.change(turn, batch, |tokens| tokens.extend(known)).await?;
        Ok(Some(changed))
    }

    async fn keep(&self, turn: Turn, origin: &Origin, token: &str, principal: &Principal) -> anyhow::Result<()> {
        let (hash, principal) = (Hash::of(token.as_bytes()), principal.clone());
        let batch = Batch::new(origin).put(Key::new(Kind::Token, hash.hex()), &principal);
        self.change(turn, batch, move |tokens| drop(tokens.insert(hash, principal))).await
    }

    /// Commits a change of tokens and applies it in memory, even if the caller stops waiting.
    async fn change(
        &self,
        turn: Turn,
        batch: Batch,
        change: impl FnOnce(&mut HashMap<Hash, Principal>) + Send + 'static,
    ) -> anyhow::Result<()> {
        let this = self.clone();
        let changed = tokio::spawn(async move {
            let _turn = turn;
            this.store.commit(batch).await?;
            change(&mut this.by_hash.write().unwrap_or_else(PoisonError::into_inner));
            this.tell();
            anyhow::Ok(())
        });
        changed.await?
    }

    /// Notifies all admitted principals, so that they check their tokens again.
    fn tell(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Revokes the tokens of `id`, or only the token with the given name. Returns the number of revoked tokens.
    ///
    /// # Errors
    /// A store error.
    pub async fn revoke(&self, origin: &Origin, id: &str, only: Option<&str>) -> anyhow::Result<usize> {
        let turn = self.turn.clone().lock_owned().await;
        let is_meant = |hash: &Hash| only.is_none_or(|only| name_of(hash) == only);
        let gone: Vec<Hash> = self.of(id).into_iter().map(|(hash, _)| hash).filter(is_meant).collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let delete = |batch: Batch, hash: &Hash| batch.delete(Key::new(Kind::Token, hash.hex()), Expect::Any);
        let (batch, count) = (gone.iter().fold(Batch::new(origin), delete), gone.len());
        self.change(turn, batch, move |tokens| tokens.retain(|hash, _| !gone.contains(hash))).await?;
        Ok(count)
    }

    /// Returns `true` if `id` has a token.
    pub fn has_one(&self, id: &str) -> bool {
        !self.of(id).is_empty()
    }

    /// Returns all tokens: the name and the principal of each.
    pub fn all(&self) -> Vec<(String, Principal)> {
        let tokens = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<(String, Principal)> =
            tokens.iter().map(|(hash, principal)| (name_of(hash), principal.clone())).collect();
        all.sort_by(|(one, a), (other, b)| a.id.cmp(&b.id).then(one.cmp(other)));
        all
    }

    /// Returns the operator's token, and `true` if it is new. The token is the configured one, otherwise the one in the
    /// file, otherwise a new one that is written to the file. A previous operator token is removed.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub async fn operator(&self, config: &Config) -> anyhow::Result<(String, bool)> {
        let file = config.token_file();
        let found = match std::fs::read_to_string(&file) {
            Ok(text) if text.trim().is_empty() => {
                tracing::warn!(file = %file.display(), "the file of the operator's token is empty: a new one is made");
                None
            }
            Ok(text) => Some(text.trim().to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            // A new token would take the rights of the one in use.
            Err(_) if !config.token.is_empty() => None,
            Err(error) => bail!("{} cannot be read: {error}; remove it to get a new token", file.display()),
        };
        let (token, is_new) = match (&config.token, found) {
            (given, _) if !given.is_empty() => (given.clone(), false),
            (_, Some(found)) => (found, false),
            (_, None) => (fresh(), true),
        };
        if token.len() < TOKEN_CHARS_MIN {
            bail!("the operator's token is shorter than {TOKEN_CHARS_MIN} characters");
        }
        if is_new {
            std::fs::create_dir_all(&config.data)
                .with_context(|| format!("{} cannot be made", config.data.display()))?;
            let mut out = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&file)
                .with_context(|| format!("{} cannot be written", file.display()))?;
            writeln!(out, "{token}")?;
            out.sync_all()?;
        }
        let operator = Principal::new("user:operator", PrincipalKind::User, Role::Operator);
        if self.principal(&token).as_ref() != Some(&operator) {
            let origin = Origin::system("operator token");
            self.revoke(&origin, "user:operator", None).await?;
            let turn = self.turn.clone().lock_owned().await;
            self.keep(turn, &origin, &token, &operator).await?;
        }
        Ok((token, is_new))
    }
}
