//! The definition of a lifeform, as shipped and as posted by clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use fascicles::FascicleId;
use jiff::civil;
use jiff::tz::TimeZone;
use neurons::tools::ToolUse;
use serde::{Deserialize, Serialize};
use store::PrincipalId;
use store::ledger::{Amount, Release, SHARE_DEFAULT, SHARE_WHOLE, share_of};

use crate::agenda::{Act, Agenda, Goal, GoalSpec, Question, Quiet, ScheduleSpec};
use crate::metabolism::Mode;

/// The id of a lifeform.
pub type LifeformId = Arc<str>;

/// A lifeform definition, shipped in `config/lifeforms` or posted by a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LifeformSpec {
    /// The name.
    pub name: String,
    /// The persona, as text for the models, best in the third person. `{name}` in it is replaced by the name.
    #[serde(default)]
    pub persona: String,
    /// The fascicle whose rules decide which changes of canvases it answers, heeds or passes over.
    #[serde(default = "perceive")]
    pub perceive: FascicleId,
    /// The fascicles that answer messages.
    #[serde(default)]
    pub reply: Skill,
    /// The fascicle for messages that need no answer. It needs no model.
    #[serde(default = "heed")]
    pub heed: Skill,
    /// The fascicles that answer under the guard's inhibition. They condense the messages before they think.
    #[serde(default = "inhibit")]
    pub inhibit: Skill,
    /// The fascicles that pursue goals and run schedules.
    #[serde(default = "pursue")]
    pub pursue: Skill,
    /// The fascicle that reacts to changes of mind maps of which the lifeform is an author.
    #[serde(default = "co_author")]
    pub co_author: Skill,
    /// The fascicle of own thoughts.
    #[serde(default = "muse")]
    pub muse: Skill,
    /// The fascicle in which the lifeform looks back on itself at night.
    #[serde(default = "reflect")]
    pub reflect: Skill,
    /// The fascicle in which a model reads statements for claims at night.
    #[serde(default = "form")]
    pub form: Skill,
    /// The fascicle in which a model describes the domains of the mind at night.
    #[serde(default = "describe")]
    pub describe: Skill,
    /// The fascicle in which a model describes the persons of the mind at night.
    #[serde(default = "describe_person")]
    pub describe_person: Skill,
    /// The fascicle that summarises the beginning of a long topic.
    #[serde(default = "compact")]
    pub compact: Skill,
    /// The fascicle whose rules decide the metabolic mode and the tokens that a task may use.
    #[serde(default = "homeostasis")]
    pub homeostasis: FascicleId,
    /// The number of characters beyond the newer half of a prompt's history from which on the lifeform summarises them,
    /// at most that half; 0 means never (default 6000).
    #[serde(default = "compact_above_chars")]
    pub compact_above_chars: u32,
    /// The principals whose requests may use tools that change something outside. Such requests of other principals
    /// wait for an approval.
    #[serde(default = "trusts")]
    pub trusts: Vec<PrincipalId>,
    /// The named tools that it is given, for calls outside of the daemon. None by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolUse>,
    /// The rules for goals that it carries out with these tools.
    #[serde(default)]
    pub acting: Acting,
    /// The scopes of the lifeform, besides its own: `project:…`, `team:…`, `org:…`. It sees all records of these
    /// scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// The rules of its initiative.
    #[serde(default)]
    pub initiative: Initiative,
    /// The first nutrients.
    #[serde(default = "birth")]
    pub nutrients: Amount,
    /// The rules of its metabolism.
    #[serde(default)]
    pub metabolism: Metabolism,
}

/// A skill with a fascicle for each mode of a lifeform: `"greet"`, or `{standard = "greet", with_tools = "greet_by_tools",
/// eco = "greet_in_short", hyper = "greet_with_care"}`. The id `"reply"` alone means the shipped variants of an
/// answer, [`Skill::default`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Skill {
    /// The fascicle for the standard mode, and for each mode without a fascicle of its own.
    pub standard: FascicleId,
    /// The fascicle for `eco`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eco: Option<FascicleId>,
    /// The fascicle for `hyper`. If there is one for models with tools too, it needs such a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyper: Option<FascicleId>,
    /// The fascicle for the standard mode if the model calls tools reliably.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_tools: Option<FascicleId>,
}

/// The written forms of a skill.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a skill is the id of a fascicle, or {standard, with_tools?, eco?, hyper?}")]
enum Written {
    One(FascicleId),
    Several(Several),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Several {
    standard: FascicleId,
    #[serde(default)]
    eco: Option<FascicleId>,
    #[serde(default)]
    hyper: Option<FascicleId>,
    #[serde(default)]
    with_tools: Option<FascicleId>,
}

/// The fascicle that answers with any model.
const REPLY: &str = "reply";
/// The fascicle that pursues goals with any model.
const PURSUE: &str = "pursue";

impl From<Written> for Skill {
    fn from(written: Written) -> Self {
        let skill = match written {
            Written::One(standard) => Self::of(standard),
            Written::Several(Several { standard, eco, hyper, with_tools }) => Self { standard, eco, hyper, with_tools },
        };
        // Lifeforms from before the variants have this form, too.
        match skill {
            skill if skill == Self::of(REPLY) => Self::default(),
            skill if skill == Self::of(PURSUE) => pursue(),
            skill => skill,
        }
    }
}

impl Default for Skill {
    fn default() -> Self {
        Self {
            standard: REPLY.into(),
            eco: Some("reply_in_short".into()),
            hyper: Some("reply_with_care".into()),
            with_tools: Some("reply_with_tools".into()),
        }
    }
}

impl Skill {
    /// Returns a skill with one fascicle.
    fn of(standard: impl Into<FascicleId>) -> Self {
        Self { standard: standard.into(), eco: None, hyper: None, with_tools: None }
    }

    /// Returns the fascicle for a mode and a model, which calls tools reliably or not.
    pub fn variant(&self, mode: Mode, tools: bool) -> &FascicleId {
        let by_tools = self.with_tools.as_ref().filter(|_| tools);
        let other = match mode {
            Mode::Eco => self.eco.as_ref().or(by_tools),
            Mode::Standard => by_tools,
            Mode::Hyper => self.hyper.as_ref().filter(|_| tools || self.with_tools.is_none()).or(by_tools),
        };
        other.unwrap_or(&self.standard)
    }

    /// Returns `true` if a fascicle of this skill is for models that call tools.
    pub(crate) fn gives_tools(&self, fascicle: &FascicleId) -> bool {
        let by_tools = self.with_tools.as_ref();
        by_tools == Some(fascicle) || (by_tools.is_some() && self.hyper.as_ref() == Some(fascicle))
    }

    /// Returns the fascicles of all modes.
    pub fn variants(&self) -> impl Iterator<Item = &FascicleId> {
        let others = [&self.with_tools, &self.eco, &self.hyper];
        std::iter::once(&self.standard).chain(others.into_iter().flatten())
    }
}

/// The maximum number of people who may approve calls for any goal.
const APPROVERS_MAX: usize = 32;
/// The maximum number of lifeforms in `invites`, and the maximum length of a name and of what it is good for, in characters.
const INVITES_MAX: usize = 8;
const INVITE_CHARS: usize = 80;

/// The rules for acts that nobody requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Initiative {
    /// The maximum number of unasked messages per day.
    pub unasked_per_day: u32,
    /// The hours in which the lifeform does not act by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiet: Option<Quiet>,
    /// `true` (the default) if the lifeform may ask about what is open in its memory, at most once a day and person, and add to
    /// earlier answers what they lacked, if the balance allows it.
    pub thoughts: bool,
    /// `true` (the default) if `$system` tends its mind every night.
    pub upkeep: bool,
    /// The lifeforms that it may bring into its own canvases without being asked, by name or id, each with what it is good
    /// for. None by default.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub invites: BTreeMap<Arc<str>, String>,
    /// The first goals.
    pub goals: Vec<GoalSpec>,
    /// The first schedules.
    pub schedules: Vec<ScheduleSpec>,
    /// The time without work after which the lifeform leaves memory, in seconds (0: never). A message or a due entry of
    /// the agenda wakes it.
    pub sleep_after_s: u64,
}

impl Default for Initiative {
    fn default() -> Self {
        Self {
            unasked_per_day: 12,
            quiet: None,
            thoughts: true,
            upkeep: true,
            invites: BTreeMap::new(),
            goals: Vec::new(),
            schedules: Vec::new(),
            sleep_after_s: 600,
        }
    }
}

/// The rules for goals that a lifeform carries out with tools (`docs/src/guides/give-it-a-tool.md`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Acting {
    /// The number of tokens that one goal may use before a person is asked (default 60,000).
    pub budget_tokens: u64,
    /// The people besides operators who may approve calls for any goal. The person who set a goal may do so for it, if the
    /// lifeform trusts this person. None by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approvers: Vec<PrincipalId>,
}

impl Default for Acting {
    fn default() -> Self {
        Self { budget_tokens: 60_000, approvers: Vec::new() }
    }
}

impl Acting {
    fn check(&self) -> Result<(), String> {
        if !(1_000..=1 << 50).contains(&self.budget_tokens) {
            return Err(format!("budget_tokens is 1000 to {}", 1_u64 << 50));
        }
        if self.approvers.len() > APPROVERS_MAX {
            return Err(format!("approvers names at most {APPROVERS_MAX}"));
        }
        match self
            .approvers
            .iter()
            .find(|who| !who.0.starts_with("user:") || store::Principal::parse_id(&who.0).is_err())
        {
            Some(other) => Err(format!("approvers: \"{}\" is no person, such as user:ada", other.0)),
            None => Ok(()),
        }
    }
}

/// The rules of a lifeform's metabolism.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metabolism {
    /// The release of nutrients over time, up to a ceiling.
    pub release: Release,
    /// The number of free tokens below which the lifeform uses economy models and short answers (`eco`).
    pub eco_below_tokens: i64,
    /// The number of free tokens above which it leaves `eco`.
    pub eco_until_tokens: i64,
    /// A number of hours (default 0: off). The lifeform also enters `eco` if its balance would last less than this at
    /// the present rate.
    pub eco_below_hours: u32,
    /// The number of free tokens above which it enters `hyper` (default 1,000,000); 0 means never.
    pub hyper_above_tokens: i64,
    /// The number of free tokens below which it rests.
    pub rest_below_tokens: i64,
    /// The share of the free balance that a participant may use per hour, from 0 to 1; 1 means no limit. Operators and
    /// the lifeform itself have no limit.
    pub person_share: f64,
    /// The interval of heartbeats, in milliseconds.
    pub beat_ms: u64,
}

impl Default for Metabolism {
    fn default() -> Self {
        Self {
            release: Release::default(),
            eco_below_tokens: 20_000,
            eco_until_tokens: 30_000,
            eco_below_hours: 0,
            hyper_above_tokens: 1_000_000,
            rest_below_tokens: 4_000,
            person_share: f64::from(SHARE_DEFAULT) / f64::from(SHARE_WHOLE),
            beat_ms: 30_000,
        }
    }
}

/// The shipped rules of perception.
pub const PERCEIVE: &str = "perceive";

fn perceive() -> FascicleId {
    PERCEIVE.into()
}

/// The shipped rules of homeostasis.
pub const HOMEOSTASIS: &str = "homeostasis";

fn homeostasis() -> FascicleId {
    HOMEOSTASIS.into()
}

fn heed() -> Skill {
    Skill::of("heed")
}

fn inhibit() -> Skill {
    Skill::of("inhibit")
}

fn co_author() -> Skill {
    Skill::of("co_author")
}

fn muse() -> Skill {
    Skill::of("muse")
}

fn reflect() -> Skill {
    Skill::of("reflect")
}

fn form() -> Skill {
    Skill::of("form")
}

fn describe() -> Skill {
    Skill::of("describe")
}

fn describe_person() -> Skill {
    Skill::of("describe_person")
}

fn compact() -> Skill {
    Skill::of("compact")
}

fn compact_above_chars() -> u32 {
    6_000
}

impl LifeformSpec {
    /// Returns the persona with the name in it.
    pub fn persona_text(&self) -> String {
        self.persona.trim().replace("{name}", &self.name)
    }

    /// Returns `true` if the requests of a principal may change something outside without an approval.
    pub(crate) fn trusts(&self, who: &str) -> bool {
        who.starts_with("system:") || self.trusts.iter().any(|trusted| *trusted.0 == *who)
    }

    /// Returns the principals besides operators who may approve the calls for an act: the person who set it, if the lifeform
    /// trusts this person, and the approvers of the definition.
    pub(crate) fn approvers_of(&self, agenda: &Agenda, act: &Act) -> Vec<PrincipalId> {
        let setter = agenda.set_by(act).filter(|who| who.starts_with("user:") && self.trusts(who));
        setter.map(PrincipalId::new).into_iter().chain(self.acting.approvers.iter().cloned()).collect()
    }

    /// Returns `true` if a person may answer the question of a goal's plan: about tokens the person who set the goal, about calls
    /// the people who may approve them; about all an operator.
    pub(crate) fn may_decide(&self, agenda: &Agenda, goal: &Goal, who: &str, is_operator: bool) -> bool {
        let act = Act::Goal(goal.id.clone());
        let is_among = match &goal.course.asks {
            Some(Question::Calls { .. }) => self.approvers_of(agenda, &act).iter().any(|approver| *approver.0 == *who),
            Some(Question::Budget { .. }) | None => agenda.set_by(&act).as_deref() == Some(who),
        };
        who.starts_with("user:") && (is_among || is_operator)
    }

    /// Returns the time zone of the lifeform: the one of its quiet hours, otherwise the one of the machine.
    pub fn zone(&self) -> TimeZone {
        let named = self.initiative.quiet.as_ref().and_then(|quiet| quiet.zone.as_deref());
        named.and_then(|name| TimeZone::get(name).ok()).unwrap_or_else(TimeZone::system)
    }

    /// Removes the scopes, the tools, and all trusted principals but the default one, and returns the removed ones as text.
    pub(crate) fn drop_rights(&mut self) -> Vec<String> {
        let known = trusts();
        let distrusted = self.trusts.extract_if(.., |who| !known.contains(who)).map(|who| format!("trusts {}", who.0));
        let mut dropped: Vec<String> = distrusted.collect();
        dropped.extend(self.scopes.drain(..).map(|scope| format!("scope {scope}")));
        let approvers = self.acting.approvers.drain(..);
        dropped.extend(approvers.map(|who| format!("acting.approvers {}", who.0)));
        dropped.extend(self.tools.drain(..).map(|tool| format!("tool {}", tool.tool)));
        dropped
    }
}

fn trusts() -> Vec<PrincipalId> {
    vec![PrincipalId::new("user:operator")]
}

fn pursue() -> Skill {
    Skill { with_tools: Some("pursue_with_tools".into()), ..Skill::of(PURSUE) }
}

fn birth() -> Amount {
    Amount::tokens(200_000)
}

/// Checks a release rule.
///
/// # Errors
/// A message that names the invalid member.
pub fn check_release(release: &Release) -> Result<(), String> {
    let fits = |amount: Amount| [amount.tokens, amount.micro_usd].iter().all(|part| (0..=1 << 50).contains(part));
    match (fits(release.per_hour), fits(release.ceiling)) {
        (true, true) => Ok(()),
        (false, _) => Err(format!("release.per_hour is 0 to {}", 1_i64 << 50)),
        (_, false) => Err(format!("release.ceiling is 0 to {}", 1_i64 << 50)),
    }
}

impl LifeformSpec {
    /// Returns the fascicles that the lifeform uses.
    pub fn fascicles(&self) -> impl Iterator<Item = &FascicleId> {
        let answering = [&self.reply, &self.heed, &self.inhibit, &self.co_author];
        let others = [&self.pursue, &self.muse, &self.reflect, &self.compact];
        let reading = [&self.form, &self.describe, &self.describe_person];
        let skills = answering.into_iter().chain(others).chain(reading);
        skills.flat_map(Skill::variants).chain([&self.perceive, &self.homeostasis])
    }

    /// Returns the agenda of a new lifeform.
    ///
    /// # Errors
    /// A message that names the fault of the definition.
    pub fn agenda(&self, now: store::Timestamp) -> Result<Agenda, String> {
        let (mut agenda, by) = (Agenda::default(), store::PrincipalId::new("system:definition"));
        for goal in &self.initiative.goals {
            agenda.set_goal(goal.clone(), &by, now).map_err(|refusal| format!("goals: {refusal}"))?;
        }
        for schedule in &self.initiative.schedules {
            agenda.set_schedule(schedule.clone(), &by, now).map_err(|refusal| format!("schedules: {refusal}"))?;
        }
        Ok(agenda)
    }

    /// Returns the next time at which `$system` tends the mind: half past three at night.
    pub(crate) fn next_night(&self, now: store::Timestamp) -> Option<store::Timestamp> {
        let here = now.to_zoned(self.zone());
        let night = |date: civil::Date| date.at(3, 30, 0, 0).to_zoned(here.time_zone().clone()).ok();
        let tonight = night(here.date()).filter(|night| *night > here);
        tonight.or_else(|| night(here.date().tomorrow().ok()?)).map(|night| night.timestamp())
    }

    /// Checks the rules that deserialisation does not check.
    ///
    /// # Errors
    /// A message that names the invalid member.
    pub fn check(&self) -> Result<(), String> {
        if self.name.trim().is_empty() || self.name.chars().count() > 80 || self.name.contains(char::is_control) {
            return Err("name is 1 to 80 characters, none of them a control character".into());
        }
        if self.persona.len() > 32 << 10 {
            return Err(format!("persona has {} bytes, the bound is {}", self.persona.len(), 32 << 10));
        }
        if self.nutrients.tokens < 0 || self.nutrients.micro_usd < 0 {
            return Err("nutrients cannot be negative".into());
        }
        if self.nutrients.tokens > 1 << 50 || self.nutrients.micro_usd > 1 << 50 {
            return Err(format!("nutrients are at most {}", 1_i64 << 50));
        }
        if self.trusts.len() > 1_000 {
            return Err("trusts names at most 1000".into());
        }
        if self.scopes.len() > 32 {
            return Err("scopes names at most 32".into());
        }
        for scope in &self.scopes {
            knowledge::check_scope(scope).map_err(|why| format!("scopes: \"{scope}\" {why}"))?;
            if !["project:", "team:", "org:"].iter().any(|entity| scope.starts_with(entity)) {
                return Err(format!("scopes: \"{scope}\" is no project, team or org"));
            }
        }
        for who in &self.trusts {
            store::Principal::parse_id(&who.0).map_err(|why| format!("trusts: {why}"))?;
        }
        self.acting.check().map_err(|why| format!("acting.{why}"))?;
        let m = &self.metabolism;
        if !(0 <= m.rest_below_tokens
            && m.rest_below_tokens <= m.eco_below_tokens
            && m.eco_below_tokens <= m.eco_until_tokens)
        {
            return Err("metabolism wants 0 <= rest_below_tokens <= eco_below_tokens <= eco_until_tokens".into());
        }
        if m.hyper_above_tokens != 0 && m.hyper_above_tokens <= m.eco_until_tokens {
            return Err("metabolism.hyper_above_tokens is 0 or above eco_until_tokens".into());
        }
        let initiative = &self.initiative;
        if !(1..=1000).contains(&initiative.unasked_per_day) {
            return Err("initiative.unasked_per_day is 1 to 1000".into());
        }
        if initiative.sleep_after_s > 30 * 86_400 {
            return Err("initiative.sleep_after_s is at most 30 days".into());
        }
        let is_fit = |(who, what): (&Arc<str>, &String)| {
            (1..=INVITE_CHARS).contains(&who.chars().count()) && what.chars().count() <= INVITE_CHARS
        };
        if initiative.invites.len() > INVITES_MAX || !initiative.invites.iter().all(is_fit) {
            return Err(format!(
                "initiative.invites has at most {INVITES_MAX} names of lifeforms with what each is good for, {INVITE_CHARS} characters each"
            ));
        }
        initiative.quiet.as_ref().map_or(Ok(()), Quiet::check).map_err(|why| format!("initiative.quiet.{why}"))?;
        self.agenda(store::Timestamp::UNIX_EPOCH).map_err(|why| format!("initiative: {why}"))?;
        check_release(&m.release).map_err(|message| format!("metabolism.{message}"))?;
        share_of(m.person_share).map_err(|message| format!("metabolism.{message}"))?;
        if !(100..=86_400_000).contains(&m.beat_ms) {
            return Err("metabolism.beat_ms is 100 to 86400000".into());
        }
        Ok(())
    }
}
