//! The principal and the cause of a command. Both travel with every command and are part of every journal entry.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Names a principal: `user:ada`, `lifeform:lf_01…`, `system:daemon`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrincipalId(pub Arc<str>);

impl PrincipalId {
    /// An id from its text; `Principal::parse_id` checks text that came from outside.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of actor that a principal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// A person.
    User,
    /// An AiLifeform hosted by this daemon or another.
    Lifeform,
    /// The daemon itself: migrations, bootstrap, recovery.
    System,
}

/// A set of rights; a principal may have several roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May do everything, top-ups and tokens included.
    Operator,
    /// May talk on canvases, invoke neurons and read.
    Participant,
    /// May only read.
    Observer,
    /// The role a lifeform acts in.
    Lifeform,
}

/// A circle of visibility: `"{entity}:{id}"` or `"public"` (MISSION R2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scope(pub Arc<str>);

/// An authenticated actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Principal {
    /// The stable name.
    pub id: PrincipalId,
    /// Person, lifeform or daemon.
    pub kind: PrincipalKind,
    /// The roles.
    pub roles: BTreeSet<Role>,
    /// The scopes that the principal sees, besides what is public.
    pub scopes: BTreeSet<Scope>,
    /// `true` if the principal acts by a definition of its own that another principal runs: then it owns nothing by its
    /// name alone. See [`Principal::by_definition_of`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
}

/// Looks up principals by id, with the roles and scopes that they have now.
pub trait Directory: Send + Sync + 'static {
    /// The principal of that id. One that has no token may look at what is public and its own.
    fn principal(&self, id: &str) -> Principal;

    /// Returns `false` once the last token of a principal was revoked: its work is stopped. The daemon and the lifeforms that
    /// live here have no tokens, and are admitted.
    fn is_admitted(&self, _id: &PrincipalId) -> bool {
        true
    }

    /// A principal that asked for something earlier, with the rights that it has now. The daemon and the lifeforms that
    /// live here have those that they had.
    fn present(&self, earlier: &Principal) -> Principal {
        match earlier.id.0.split_once(':') {
            Some(("lifeform" | "system", _)) => earlier.clone(),
            _ => Principal { limited: earlier.limited, ..self.principal(&earlier.id.0) },
        }
    }
}

/// A directory without entries: every principal may look at what is public and its own.
pub struct NoDirectory;

impl Directory for NoDirectory {
    fn principal(&self, id: &str) -> Principal {
        Principal::new(id, PrincipalKind::User, Role::Observer)
    }

    fn present(&self, earlier: &Principal) -> Principal {
        earlier.clone()
    }
}

/// See [`Principal::anybody`].
const ANYBODY: &str = "user:anonymous";

impl Principal {
    /// A principal of one role whose only private scope is its own id.
    pub fn new(id: impl Into<Arc<str>>, kind: PrincipalKind, role: Role) -> Self {
        let id = PrincipalId::new(id);
        let scopes = [Scope(id.0.clone()), Scope("public".into())].into();
        Self { id, kind, roles: [role].into(), scopes, limited: false }
    }

    /// Returns `true` if the principal is bound by shares: it is no operator, not the daemon and no lifeform of this
    /// daemon.
    pub fn is_bound(&self) -> bool {
        self.kind != PrincipalKind::System && !self.may(Role::Operator) && !self.may(Role::Lifeform)
    }

    /// The daemon acting for itself.
    pub fn system() -> Self {
        Self::new("system:daemon", PrincipalKind::System, Role::Operator)
    }

    /// Whoever comes without a token: he sees what is public, does nothing and has nothing paid for him.
    pub fn anybody() -> Self {
        let mut anybody = Self::new(ANYBODY, PrincipalKind::User, Role::Observer);
        anybody.scopes = [Scope("public".into())].into();
        anybody
    }

    /// Returns `true` for the anonymous principal.
    pub fn is_anybody(&self) -> bool {
        &*self.id.0 == ANYBODY
    }

    /// The lifeform `id` acting for itself.
    pub fn lifeform(id: &str) -> Self {
        Self::new(format!("lifeform:{id}"), PrincipalKind::Lifeform, Role::Lifeform)
    }

    /// Returns `true` if the principal has `role`; an operator has every one.
    pub fn may(&self, role: Role) -> bool {
        self.roles.contains(&role) || self.roles.contains(&Role::Operator)
    }

    /// Returns the principal that acts when this one runs a definition of `author`: what it does is the author's doing,
    /// with the roles and scopes that both have. A definition of an operator, or of the principal itself, leaves it as
    /// it is.
    #[must_use]
    pub fn by_definition_of(&self, author: &Principal) -> Self {
        if author.id == self.id || author.may(Role::Operator) {
            return self.clone();
        }
        let acts = |one: &Self| one.may(Role::Participant) || one.may(Role::Lifeform);
        let role = if acts(self) && acts(author) { Role::Participant } else { Role::Observer };
        Self {
            id: author.id.clone(),
            kind: author.kind,
            roles: [role].into(),
            // An operator sees everything.
            scopes: if self.may(Role::Operator) {
                author.scopes.clone()
            } else {
                self.scopes.intersection(&author.scopes).cloned().collect()
            },
            limited: true,
        }
    }

    /// Returns `true` if what belongs to `owner` is this principal's: its own, or that of the user or agent it also is.
    pub fn answers_for(&self, owner: &str) -> bool {
        let somebody = ["user:", "agent:", "lifeform:"].iter().any(|kind| owner.starts_with(kind));
        (*self.id.0 == *owner && !self.limited) || (somebody && self.scopes.iter().any(|scope| *scope.0 == *owner))
    }

    /// Checks the text of an id: `kind:name`, at most 96 bytes of letters, digits and `-_.@`.
    ///
    /// # Errors
    /// A sentence saying what is wrong with it.
    pub fn parse_id(text: &str) -> Result<(&str, &str), String> {
        let (kind, name) =
            text.split_once(':').ok_or_else(|| format!("\"{text}\" is not kind:name, as in user:ada"))?;
        let legal = |c: char| c.is_alphanumeric() || "-_.@".contains(c);
        if name.is_empty() || text.len() > 96 || !name.chars().all(legal) {
            return Err(format!(
                "\"{name}\" is not a name of letters, digits, '-', '_', '.' and '@', at most 96 bytes"
            ));
        }
        if !["user", "lifeform", "system", "agent"].contains(&kind) {
            return Err(format!("\"{kind}\" is not one of user, lifeform, agent, system"));
        }
        Ok((kind, name))
    }
}

/// The causes of an act: references such as `canvas:lf_1/chat@41`, `job:…#2`, `http:…`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cause(pub Vec<Arc<str>>);

impl Cause {
    /// The most references of one entry.
    pub const REFS_MAX: usize = 16;

    /// A cause of one reference.
    pub fn of(reference: impl Into<Arc<str>>) -> Self {
        Self(vec![reference.into()])
    }

    /// This cause and one reference more, nearest last; the oldest are dropped past `REFS_MAX`.
    pub fn and(&self, reference: impl Into<Arc<str>>) -> Self {
        let mut refs = self.0.clone();
        refs.push(reference.into());
        let over = refs.len().saturating_sub(Self::REFS_MAX);
        refs.drain(..over);
        Self(refs)
    }
}

/// The two things every command carries: who asks and what led to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The principal.
    pub principal: Principal,
    /// The cause.
    pub cause: Cause,
    /// The participant that a lifeform works for, whose share of its account the work draws on; `None` for work of the
    /// principal's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<PrincipalId>,
}

impl Origin {
    /// `principal` acting because of `cause`.
    pub fn new(principal: Principal, cause: Cause) -> Self {
        Self { principal, cause, on_behalf_of: None }
    }

    /// The same, on behalf of a participant.
    #[must_use]
    pub fn on_behalf_of(self, participant: Option<PrincipalId>) -> Self {
        Self { on_behalf_of: participant, ..self }
    }

    /// Returns the participant whose share of what there is this takes: whom it is done for, or the principal itself.
    /// Operators, the daemon, and lifeforms that act of their own accord are bound by no share.
    pub fn participant(&self) -> Option<&Arc<str>> {
        let own = self.principal.is_bound().then_some(&self.principal.id.0);
        self.on_behalf_of.as_ref().map(|participant| &participant.0).or(own)
    }

    /// The daemon acting for itself, for the given reason.
    pub fn system(reason: &str) -> Self {
        Self::new(Principal::system(), Cause::of(reason))
    }

    /// The same principal, one step further down the causal chain.
    pub fn because(&self, reference: impl Into<Arc<str>>) -> Self {
        Self { cause: self.cause.and(reference), ..self.clone() }
    }
}
