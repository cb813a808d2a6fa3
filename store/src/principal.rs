//! The principal and the cause of a command. Every command carries both, and every journal entry stores both.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The id of a principal: `user:ada`, `lifeform:lf_01…`, `system:daemon`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, example = "user:ada")]
pub struct PrincipalId(pub Arc<str>);

impl PrincipalId {
    /// Returns an id without checks; `Principal::parse_id` checks text from outside.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kind of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May do everything, top-ups and tokens included.
    Operator,
    /// May talk on canvases, invoke neurons and read.
    Participant,
    /// May only read.
    Observer,
    /// The role of a lifeform.
    Lifeform,
}

/// A visibility scope: `"{entity}:{id}"` or `"public"` (MISSION R2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = String, example = "org:acme")]
pub struct Scope(pub Arc<str>);

/// An authenticated actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Principal {
    /// The stable id.
    pub id: PrincipalId,
    /// The kind: person, lifeform or daemon.
    pub kind: PrincipalKind,
    /// The roles.
    pub roles: BTreeSet<Role>,
    /// The scopes that the principal sees, in addition to public data.
    pub scopes: BTreeSet<Scope>,
    /// `true` if another principal runs a definition of this one, which then acts with limited rights: its name alone
    /// gives it no ownership. See [`Principal::by_definition_of`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
    /// `true` for a lifeform or an agent that acts through a token, as those that live elsewhere do: shares apply to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guest: bool,
}

/// A lookup of principals by id, with their present roles and scopes.
pub trait Directory: Send + Sync + 'static {
    /// Returns the principal with the id. A principal without a token sees public data and its own.
    fn principal(&self, id: &str) -> Principal;

    /// Returns the principal with the id, with those roles that all of its tokens have.
    fn least_principal(&self, id: &str) -> Principal {
        self.principal(id)
    }

    /// Returns `false` once the last token of a principal was revoked; its work is then stopped. The daemon and the
    /// lifeforms of this daemon have no tokens and are admitted.
    fn is_admitted(&self, _id: &PrincipalId) -> bool {
        true
    }

    /// Returns `true` for a lifeform that acts through a token, as those that live elsewhere do: shares apply to it.
    fn is_guest(&self, _id: &str) -> bool {
        false
    }

    /// Returns the principal of an earlier request with those of its rights that it still has. The daemon and the
    /// lifeforms of this daemon keep their rights.
    fn present(&self, earlier: &Principal) -> Principal {
        match earlier.id.0.split_once(':') {
            Some(("system", _)) => earlier.clone(),
            // A lifeform needs no token; more rights than its own came from one.
            Some(("lifeform", _)) if !earlier.guest && !earlier.may(Role::Operator) => earlier.clone(),
            _ => earlier.at_most(&self.principal(&earlier.id.0)),
        }
    }
}

/// A directory without entries: every principal sees public data and its own.
pub struct NoDirectory;

impl Directory for NoDirectory {
    fn principal(&self, id: &str) -> Principal {
        Principal::new(id, PrincipalKind::User, Role::Observer)
    }

    fn present(&self, earlier: &Principal) -> Principal {
        earlier.clone()
    }
}

/// The id of the anonymous principal; see [`Principal::anybody`].
const ANYBODY: &str = "user:anonymous";

impl Principal {
    /// Returns a principal of one role whose only private scope is its own id.
    ///
    /// ```
    /// use store::{Principal, PrincipalKind, Role};
    /// let ada = Principal::new("user:ada", PrincipalKind::User, Role::Participant);
    /// assert!(ada.may(Role::Participant) && !ada.may(Role::Operator));
    /// ```
    pub fn new(id: impl Into<Arc<str>>, kind: PrincipalKind, role: Role) -> Self {
        let id = PrincipalId::new(id);
        let scopes = [Scope(id.0.clone()), Scope("public".into())].into();
        Self { id, kind, roles: [role].into(), scopes, limited: false, guest: false }
    }

    /// Returns `true` if shares apply to the principal: it is not an operator, the daemon or a lifeform of this
    /// daemon.
    ///
    /// ```
    /// use store::{Principal, PrincipalKind, Role};
    /// assert!(Principal::new("user:ada", PrincipalKind::User, Role::Participant).is_bound());
    /// assert!(!Principal::lifeform("lf_1").is_bound());
    /// ```
    pub fn is_bound(&self) -> bool {
        let lives_here = self.may(Role::Lifeform) && !self.guest;
        self.kind != PrincipalKind::System && !self.may(Role::Operator) && !lives_here
    }

    /// Returns the daemon as principal.
    pub fn system() -> Self {
        Self::new("system:daemon", PrincipalKind::System, Role::Operator)
    }

    /// Returns the anonymous principal, for requests without a token. It sees public data, and may neither act nor
    /// cause costs.
    pub fn anybody() -> Self {
        let mut anybody = Self::new(ANYBODY, PrincipalKind::User, Role::Observer);
        anybody.scopes = [Scope("public".into())].into();
        anybody
    }

    /// Returns `true` for the anonymous principal.
    pub fn is_anybody(&self) -> bool {
        &*self.id.0 == ANYBODY
    }

    /// Returns the lifeform `id` as principal.
    pub fn lifeform(id: &str) -> Self {
        Self::new(format!("lifeform:{id}"), PrincipalKind::Lifeform, Role::Lifeform)
    }

    /// Returns `true` if the principal has `role`; an operator has every role.
    ///
    /// ```
    /// use store::{Principal, Role};
    /// assert!(Principal::system().may(Role::Participant));
    /// assert!(!Principal::anybody().may(Role::Participant));
    /// ```
    pub fn may(&self, role: Role) -> bool {
        self.roles.contains(&role) || self.roles.contains(&Role::Operator)
    }

    /// Returns the acting principal when this principal runs a definition of `author`: the author, with the roles and
    /// scopes that both have. For a definition of an operator, or of this principal itself, returns this principal
    /// unchanged.
    ///
    /// ```
    /// use store::{Principal, PrincipalKind, Role};
    /// let ada = Principal::new("user:ada", PrincipalKind::User, Role::Participant);
    /// let operator = Principal::new("user:op", PrincipalKind::User, Role::Operator);
    /// // Ada's definition, run by an operator, acts as Ada.
    /// assert_eq!(&*operator.by_definition_of(&ada).id.0, "user:ada");
    /// // An operator's definition, run by Ada, acts as Ada, too.
    /// assert_eq!(&*ada.by_definition_of(&operator).id.0, "user:ada");
    /// ```
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
            guest: author.guest || self.guest,
        }
    }

    /// Returns this principal with the roles and scopes that it still has, of those that `now` has.
    #[must_use]
    pub fn at_most(&self, now: &Principal) -> Self {
        if self.roles == now.roles && self.scopes == now.scopes {
            return self.clone();
        }
        let all = [Role::Observer, Role::Participant, Role::Lifeform, Role::Operator];
        let roles = all.into_iter().filter(|role| self.may(*role) && now.may(*role));
        Self {
            roles: roles.collect(),
            scopes: self.scopes.intersection(&now.scopes).cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns `true` if `owner` names this principal, or the user or agent that this principal also is.
    ///
    /// ```
    /// use store::{Principal, PrincipalKind, Role};
    /// let ada = Principal::new("user:ada", PrincipalKind::User, Role::Participant);
    /// assert!(ada.answers_for("user:ada") && !ada.answers_for("user:bob"));
    /// ```
    pub fn answers_for(&self, owner: &str) -> bool {
        let somebody = ["user:", "agent:", "lifeform:"].iter().any(|kind| owner.starts_with(kind));
        (*self.id.0 == *owner && !self.limited) || (somebody && self.scopes.iter().any(|scope| *scope.0 == *owner))
    }

    /// Checks the text of an id: `kind:name`, at most 96 bytes of letters, digits and `-_.@`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the id.
    ///
    /// ```
    /// use store::Principal;
    /// assert_eq!(Principal::parse_id("user:ada"), Ok(("user", "ada")));
    /// assert!(Principal::parse_id("ada").is_err());
    /// ```
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

/// The causes of an action: references such as `canvas:lf_1/chat@41`, `job:…#2`, `http:…`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = Vec<String>)]
pub struct Cause(pub Vec<Arc<str>>);

impl Cause {
    /// The maximum number of references per entry.
    pub const REFS_MAX: usize = 16;

    /// Returns a cause of one reference.
    pub fn of(reference: impl Into<Arc<str>>) -> Self {
        Self(vec![reference.into()])
    }

    /// Returns this cause with one more reference, nearest last. Past `REFS_MAX`, the oldest are dropped.
    ///
    /// ```
    /// use store::Cause;
    /// let cause = Cause::of("msg:1").and("job:2");
    /// assert_eq!(cause.0.len(), 2);
    /// ```
    pub fn and(&self, reference: impl Into<Arc<str>>) -> Self {
        let mut refs = self.0.clone();
        refs.push(reference.into());
        let over = refs.len().saturating_sub(Self::REFS_MAX);
        refs.drain(..over);
        Self(refs)
    }
}

/// The origin of a command: the acting principal and the cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The principal.
    pub principal: Principal,
    /// The cause.
    pub cause: Cause,
    /// The participant for whom a lifeform works. The work draws on this participant's share of the account; `None`
    /// for work of the principal's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<PrincipalId>,
}

impl Origin {
    /// Returns the origin of `principal` acting because of `cause`.
    pub fn new(principal: Principal, cause: Cause) -> Self {
        Self { principal, cause, on_behalf_of: None }
    }

    /// Returns this origin on behalf of a participant.
    #[must_use]
    pub fn on_behalf_of(self, participant: Option<PrincipalId>) -> Self {
        Self { on_behalf_of: participant, ..self }
    }

    /// Returns the participant whose share of the account the work draws on: the one it is done for, or the principal
    /// itself. No share applies to operators, the daemon, and lifeforms that act on their own initiative.
    pub fn participant(&self) -> Option<&Arc<str>> {
        let own = self.principal.is_bound().then_some(&self.principal.id.0);
        self.on_behalf_of.as_ref().map(|participant| &participant.0).or(own)
    }

    /// Returns the origin of an action of the daemon for the given reason.
    pub fn system(reason: &str) -> Self {
        Self::new(Principal::system(), Cause::of(reason))
    }

    /// Returns an origin of the same principal, one step further in the causal chain.
    pub fn because(&self, reference: impl Into<Arc<str>>) -> Self {
        Self { cause: self.cause.and(reference), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_request_loses_revoked_rights_and_gains_no_new_ones() {
        let of = |role| Principal::new("user:ada", PrincipalKind::User, role);
        let with = |role, scope: &str| {
            let mut principal = of(role);
            principal.scopes.insert(Scope(scope.into()));
            principal
        };
        let began = with(Role::Operator, "team:x");
        assert!(began.at_most(&began).may(Role::Operator));
        let lesser = began.at_most(&of(Role::Participant));
        assert!(lesser.may(Role::Participant) && !lesser.may(Role::Operator));
        assert_eq!(lesser.scopes, of(Role::Participant).scopes);
        let greater = of(Role::Participant).at_most(&with(Role::Operator, "team:y"));
        assert!(!greater.may(Role::Operator) && greater.scopes == of(Role::Participant).scopes);
    }
}
