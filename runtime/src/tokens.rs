//! Bearer tokens, kept as hashes, each for one principal.

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

/// Scopes one principal may be in.
const SCOPES_MAX: usize = 64;
/// Letters of the name of a token.
const NAME_CHARS: usize = 12;
/// The shortest token an operator may choose.
const TOKEN_CHARS_MIN: usize = 16;

/// The right to change tokens now.
type Turn = OwnedMutexGuard<()>;

/// A cheap handle on the tokens of a daemon.
#[derive(Clone)]
pub struct Tokens {
    store: Store,
    by_hash: Arc<RwLock<HashMap<Hash, Principal>>>,
    /// `true` if public content is read without a token.
    is_open: bool,
    /// Counts the changes of tokens, for those who were let in by one.
    changes: Arc<watch::Sender<u64>>,
    /// Tokens are made, changed and taken back one after the other.
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

/// A principal that stays: it has the rights that its token has now, and none once the token was taken back.
pub struct Admitted {
    tokens: Tokens,
    hash: Hash,
    principal: Principal,
    changes: watch::Receiver<u64>,
}

impl Admitted {
    /// The principal, as its token was when it was looked at last.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Looks at the token again; returns `false` when it was taken back.
    pub fn renew(&mut self) -> bool {
        self.changes.mark_unchanged();
        let known = self.tokens.by_hash.read().unwrap_or_else(PoisonError::into_inner).get(&self.hash).cloned();
        let is_known = known.is_some();
        self.principal = known.unwrap_or_else(Principal::anybody);
        is_known
    }

    /// Waits until the token has other rights, or was taken back: then it returns, and [`Self::renew`] is `false`.
    /// Other tokens that change are passed over.
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

/// Returns the name of a token where it is not shown: the beginning of its hash.
fn name_of(hash: &Hash) -> String {
    hash.hex()[..NAME_CHARS].to_owned()
}

impl Directory for Tokens {
    fn principal(&self, id: &str) -> Principal {
        self.whole(id)
    }

    fn is_admitted(&self, id: &PrincipalId) -> bool {
        let needs_none = matches!(id.0.split_once(':'), Some(("lifeform" | "system", _)));
        needs_none || *id == Principal::anybody().id || self.has_one(&id.0)
    }
}

impl Tokens {
    /// Loads the tokens kept in `store`.
    ///
    /// # Errors
    /// The store's own.
    pub async fn open(store: Store) -> anyhow::Result<Self> {
        let kept = store.documents::<Principal>(Kind::Token, "", 100_000).await?;
        let by_hash = kept.into_iter().filter_map(|(id, found)| Some((Hash::parse(&id)?, found.value))).collect();
        Ok(Self {
            store,
            by_hash: Arc::new(RwLock::new(by_hash)),
            is_open: false,
            changes: Arc::default(),
            turn: Arc::default(),
        })
    }

    /// With readers that have no token, of what is public to all.
    #[must_use]
    pub fn with_anybody(self) -> Self {
        Self { is_open: true, ..self }
    }

    /// Returns the anonymous principal, if public content is read without a token.
    pub fn anybody(&self) -> Option<Principal> {
        self.is_open.then(Principal::anybody)
    }

    /// Returns the principal of a token. Only hashes are compared, so the time reveals nothing about a token.
    pub fn principal(&self, token: &str) -> Option<Principal> {
        self.by_hash.read().unwrap_or_else(PoisonError::into_inner).get(&Hash::of(token.as_bytes())).cloned()
    }

    /// Admits the principal of a token, for as long as the token is known.
    pub fn admit(&self, token: &str) -> Option<Admitted> {
        let hash = Hash::of(token.as_bytes());
        let changes = self.changes.subscribe();
        let principal = self.by_hash.read().unwrap_or_else(PoisonError::into_inner).get(&hash).cloned()?;
        Some(Admitted { tokens: self.clone(), hash, principal, changes })
    }

    /// The principal of that id, with what all of its tokens let it see and do.
    fn whole(&self, id: &str) -> Principal {
        let mut whole = match id.split_once(':') {
            Some(("system", _)) => return Principal::system(),
            // One that lives here acts without a token.
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

    /// Makes a token for `id` in `role`. It is shown once; only its hash is kept. Who has a token already is in the
    /// same scopes with every other: it is not put into more by the way.
    ///
    /// # Errors
    /// When the id is not well made, when it is in other scopes already, or the store fails.
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
        let token = fresh();
        let mut principal = Principal::new(id, kind, role);
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

    /// The tokens of a principal, by their hashes.
    fn of(&self, id: &str) -> Vec<(Hash, Principal)> {
        let tokens = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        tokens.iter().filter(|(_, known)| *known.id.0 == *id).map(|(hash, known)| (*hash, known.clone())).collect()
    }

    /// Puts a principal into these scopes, besides its own and the public one, and into no others: all its tokens hold
    /// for them at once. Answers what it is then, or `None` where it has no token.
    ///
    /// # Errors
    /// When a scope is not well made, or the store fails.
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

    /// Commits a change of tokens and makes it in memory, whether or not the caller waits for it.
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

    /// Has everybody who was let in look at his token.
    fn tell(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes the tokens of `id` back, or the one of that name; answers how many there were.
    ///
    /// # Errors
    /// The store's own.
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

    /// Every token: its name, and whose it is.
    pub fn all(&self) -> Vec<(String, Principal)> {
        let tokens = self.by_hash.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<(String, Principal)> =
            tokens.iter().map(|(hash, principal)| (name_of(hash), principal.clone())).collect();
        all.sort_by(|(one, a), (other, b)| a.id.cmp(&b.id).then(one.cmp(other)));
        all
    }

    /// The operator's token: the configured one, else the one in the file, else a new one in the file.
    /// Answers whether it is new. A token that was the operator's before is let go.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub async fn operator(&self, config: &Config) -> anyhow::Result<(String, bool)> {
        let file = config.token_file();
        let found =
            std::fs::read_to_string(&file).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
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
