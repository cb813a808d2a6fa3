//! The filing of what was learned into domains. The model that reads statements for claims names the theme of each
//! (`relevance_tags`); themes with enough statements become domains, by rule. `docs/src/internals/knowing.md` explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use nexus::NexusError;
use nexus::kip::graph::text::terms;
use serde_json::{Value, json};
use store::Origin;

use super::resolving::plain;
use crate::memory::{Memory, rows};

/// The source of the domains and memberships that filing makes.
pub(super) const FILING: &str = "filing";
/// The numbers of statements, and of messages that state them, from which a theme becomes a domain.
const STATEMENTS_MIN: usize = 8;
const MESSAGES_MIN: usize = 3;
/// The maximum number of domains of a mind that filing makes.
const DOMAINS_MAX: usize = 24;
/// The maximum number of statements, mentions and memberships that one run reads, and of memberships that it writes or ends.
const FACTS_MAX: usize = 5_000;
const MENTIONS_MAX: usize = 20_000;
const MEMBERS_MAX: usize = 20_000;
const FILED_MAX: usize = 500;
/// The share of the tagged statements about a concept that must be of a domain, and their number.
const SHARE_MIN: f64 = 0.6;
const ABOUT_MIN: usize = 2;
/// The bounds of a name, in characters and words.
const NAME_CHARS_MAX: usize = 40;
const NAME_WORDS_MAX: usize = 4;
/// The maximum number of themes of a statement.
const THEMES_MAX: usize = 2;
/// The domains that every mind has.
const RESERVED: [&str; 3] = ["CoreSchema", "Conversation", "Knowledge"];

const TAGGED: &str = r#"FIND(?f.id, ?f.metadata.relevance_tags, ?f.metadata.access_scopes, ?f.attributes.message, ?f.metadata.access_level, ?f.metadata.author, ?f.attributes.stated_at) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active" && IS_NOT_NULL(?f.metadata.relevance_tags)) } ORDER BY ?f.metadata._updated_at DESC LIMIT $limit"#;
const TAG: &str = r#"UPDATE ?f SET METADATA { relevance_tags: $tags } WHERE { ?f {id: $fact} }"#;
const MENTIONED: &str = r#"FIND(?f.id, ?e.id, ?e.metadata.access_scopes) WHERE { (?f, "mentions", ?e) FILTER(?f.metadata.status == "active" && IS_NOT_NULL(?f.metadata.relevance_tags)) } LIMIT $limit"#;
const DOMAINS: &str = r#"FIND(?d.name, ?d.metadata.source, ?d.metadata.access_scopes, ?d.metadata.described_from) WHERE { ?d {type: "Domain"} }"#;
const MEMBERS: &str = r#"FIND(?d.name, ?x.id, ?l.id, ?x.type, ?l.metadata.access_scopes) WHERE { ?d {type: "Domain"} ?l (?x, "belongs_to_domain", ?d) FILTER(?d.metadata.source == "filing" && ?l.metadata.source == "filing") } LIMIT $limit"#;
const LEAVE: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l (id: $link) }"#;
const DROP: &str = r#"DELETE CONCEPT ?d DETACH WHERE { ?d {type: "Domain", name: $name} }"#;
/// Takes the description of a model back.
const UNDESCRIBE: &str = r#"UPDATE ?d SET ATTRIBUTES { description: $description } SET METADATA { described_from: [] } WHERE { ?d {type: "Domain", name: $name} }"#;
const SHOW: &str = r#"UPDATE ?d SET METADATA { access_scopes: $scopes } WHERE { ?d {type: "Domain", name: $name} }"#;

/// Returns the themes that a model gave to statements, each with the place of its statement. A name that is too long, is
/// reserved or holds signs is no theme.
pub(super) fn themes(answer: &Value, count: usize) -> Vec<(usize, String)> {
    let mut themes: Vec<(usize, String)> = Vec::new();
    for one in answer["filed"].as_array().into_iter().flatten() {
        let at = one["n"].as_u64().and_then(|n| usize::try_from(n).ok()?.checked_sub(1)).filter(|at| *at < count);
        let (Some(at), Some(name)) = (at, one["domain"].as_str().and_then(theme)) else { continue };
        let of: Vec<&(usize, String)> = themes.iter().filter(|(of, _)| *of == at).collect();
        if of.len() < THEMES_MAX && of.iter().all(|(_, known)| key(known) != key(&name)) {
            themes.push((at, name));
        }
    }
    themes
}

/// Returns a name as that of a theme, if it may be one.
pub(super) fn theme(name: &str) -> Option<String> {
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_plain = |c: char| c.is_alphanumeric() || " -&'’・·".contains(c);
    let is_short = name.chars().count() <= NAME_CHARS_MAX && name.split(' ').count() <= NAME_WORDS_MAX;
    let one_word = plain(&name).replace([' ', '-'], "");
    let is_reserved = RESERVED.iter().any(|reserved| plain(reserved) == one_word);
    let is_name = is_short && !is_reserved && name.chars().all(is_plain) && name.chars().any(char::is_alphabetic);
    is_name.then_some(name)
}

/// Returns the key under which two spellings of a theme are one: "Climbing" and "climbs".
pub(super) fn key(name: &str) -> String {
    let stems: BTreeSet<String> = terms(name).into_iter().map(|term| term.to_string()).collect();
    if stems.is_empty() { plain(name) } else { stems.into_iter().collect::<Vec<_>>().join(" ") }
}

/// Returns the description of a domain that no model has described.
pub(super) fn description(name: &str) -> String {
    format!("Statements of people about {name}.")
}

/// A statement with a theme.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tagged {
    pub(super) tags: Vec<String>,
    /// The people who may know of it.
    pub(super) scopes: BTreeSet<String>,
    message: String,
    /// The time at which it was stated last, as it is stored.
    pub(super) stated_at: String,
}

/// A theme with its statements.
#[derive(Clone, Debug, Default, PartialEq)]
struct Theme {
    /// The spellings, each with its number of statements.
    names: BTreeMap<String, usize>,
    /// The ids of the statements, each with the people who may know of it.
    facts: BTreeMap<String, BTreeSet<String>>,
    messages: BTreeSet<String>,
}

impl Theme {
    /// Returns the most frequent spelling.
    fn name(&self) -> &str {
        let most = self.names.iter().max_by(|(one, many), (other, more)| many.cmp(more).then(other.cmp(one)));
        most.map_or("", |(name, _)| name)
    }
}

/// Returns the themes of statements, by key.
fn by_theme<'t>(facts: impl IntoIterator<Item = (&'t String, &'t Tagged)>) -> BTreeMap<String, Theme> {
    let mut themes: BTreeMap<String, Theme> = BTreeMap::new();
    for (id, fact) in facts {
        for tag in &fact.tags {
            let theme = themes.entry(key(tag)).or_default();
            *theme.names.entry(tag.clone()).or_default() += 1;
            theme.facts.insert(id.clone(), fact.scopes.clone());
            theme.messages.insert(fact.message.clone());
        }
    }
    themes
}

/// A domain as filing wants it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wanted {
    name: String,
    /// The members, each with the people who may know that it is one.
    members: BTreeMap<String, BTreeSet<String>>,
    /// The people who may know of one of the statements.
    seen_by: BTreeSet<String>,
    is_new: bool,
}

/// A domain as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) is_own: bool,
    pub(super) seen_by: BTreeSet<String>,
    /// The statements from which a model described it; empty if none did.
    pub(super) described_from: Vec<String>,
}

/// The outcome of filing.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub(crate) struct Filed {
    /// The names of new domains.
    made: Vec<String>,
    /// The number of new memberships.
    filed: usize,
    /// The number of memberships that ended.
    ended: usize,
    /// The names of domains that have no statements any more.
    dropped: Vec<String>,
    /// The number of statements with a theme that is no domain yet.
    waiting: usize,
}

/// The memberships that filing made, by domain: the id of the member, with the link.
type Present = BTreeMap<String, BTreeMap<String, String>>;

impl Memory {
    /// Writes the themes of a statement.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn tag(&self, fact: &str, themes: &[&str], cause: &Origin) -> Result<(), NexusError> {
        self.ask(TAG, json!({"fact": fact, "tags": themes}), cause).await.map(drop)
    }

    /// Returns the names of the themes of statements that all of `audience` may know, those with the most statements first.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn known_themes(
        &self,
        audience: &BTreeSet<String>,
        cause: &Origin,
    ) -> Result<Vec<String>, NexusError> {
        let (tagged, _) = self.tagged(cause).await?;
        let mut themes: Vec<(String, Theme)> =
            by_theme(tagged.iter().filter(|(_, fact)| audience.is_subset(&fact.scopes))).into_iter().collect();
        themes.sort_by_key(|(key, theme)| (std::cmp::Reverse(theme.facts.len()), key.clone()));
        Ok(themes.iter().take(DOMAINS_MAX).map(|(_, theme)| theme.name().to_owned()).collect())
    }

    /// Returns the domains of the mind.
    pub(super) async fn domains(&self, cause: &Origin) -> Result<Vec<Stored>, NexusError> {
        let found = self.run_checked(DOMAINS, json!({}), cause).await?;
        let of = |row: &Value| {
            let (name, is_own) = (row[0].as_str()?.to_owned(), row[1] == FILING);
            let described_from = row[3].as_array().into_iter().flatten().filter_map(Value::as_str);
            let described_from = described_from.map(str::to_owned).collect();
            Some(Stored { name, is_own, seen_by: scopes_in(&row[2]), described_from })
        };
        Ok(rows(&found).iter().filter_map(of).collect())
    }

    /// Takes the description of a model back.
    async fn undescribe(&self, name: &str, cause: &Origin) -> Result<(), NexusError> {
        let parameters = json!({"name": name, "description": description(name)});
        self.run_checked(UNDESCRIBE, parameters, cause).await.map(drop)
    }

    /// Returns the newest statements that have a theme, by id, and `true` if these are all.
    pub(super) async fn tagged(&self, cause: &Origin) -> Result<(BTreeMap<String, Tagged>, bool), NexusError> {
        let found = self.run_checked(TAGGED, json!({"limit": FACTS_MAX}), cause).await?;
        let of = |row: &Value| {
            let tags = row[1].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let id = row[0].as_str()?.to_owned();
            let message = row[3].as_str().unwrap_or(&id).to_owned();
            let stated_at = row[6].as_str().unwrap_or_default().to_owned();
            // What is private is its author's.
            let scopes = match row[4].as_str().is_some_and(|level| level != "public") {
                true => row[5].as_str().map(str::to_owned).into_iter().collect(),
                false => scopes_in(&row[2]),
            };
            Some((id, Tagged { tags, scopes, message, stated_at }))
        };
        Ok((rows(&found).iter().filter_map(of).collect(), rows(&found).len() < FACTS_MAX))
    }

    /// Files the statements that have a theme, and the concepts that they mention, into domains. Themes with few statements wait;
    /// a domain whose statements were forgotten goes. A trial changes nothing and returns the same.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(crate) async fn file(&self, is_trial: bool, cause: &Origin) -> Result<Filed, NexusError> {
        let _turn = self.take_turn().await;
        let (tagged, are_all) = self.tagged(cause).await?;
        let domains = self.domains(cause).await?;
        let (wanted, waiting) = self.wanted_domains(&tagged, &domains, cause).await?;
        let mut filed = Filed { waiting, ..Filed::default() };
        let (mut present, are_all_members) = self.members(cause).await?;
        // What was not read is not missing.
        let may_end = are_all && are_all_members;
        let (mut left, mut to_end) = (FILED_MAX, FILED_MAX);
        for domain in &wanted {
            let known = present.remove(&domain.name).unwrap_or_default();
            let is_over = |(id, _): &(&String, &String)| may_end && !domain.members.contains_key(*id);
            for (_, link) in known.iter().filter(is_over).take(to_end) {
                (to_end, filed.ended) = (to_end - 1, filed.ended + 1);
                if !is_trial {
                    self.run_checked(LEAVE, json!({"link": link}), cause).await?;
                }
            }
            let new: Vec<(&String, &BTreeSet<String>)> =
                domain.members.iter().filter(|(id, _)| !known.contains_key(*id)).take(left).collect();
            (left, filed.filed) = (left - new.len(), filed.filed + new.len());
            filed.made.extend((domain.is_new && !new.is_empty()).then(|| domain.name.clone()));
            if is_trial {
                continue;
            }
            let stored = domains.iter().find(|stored| stored.name == domain.name);
            let seen_by = stored.map(|stored| &stored.seen_by);
            // A description tells of the statements from which it was made.
            let tells = |fact: &String| domain.members.get(fact).is_some_and(|heard| domain.seen_by.is_subset(heard));
            if stored.is_some_and(|stored| !stored.described_from.iter().all(tells)) {
                self.undescribe(&domain.name, cause).await?;
            }
            if !new.is_empty() {
                let (command, parameters) = command(domain, &new);
                self.run_checked(&command, parameters, cause).await?;
            } else if seen_by.is_some_and(|seen_by| *seen_by != domain.seen_by) {
                self.run_checked(SHOW, json!({"name": domain.name, "scopes": domain.seen_by}), cause).await?;
            }
        }
        for name in present.into_keys().filter(|_| may_end) {
            if !is_trial {
                self.run_checked(DROP, json!({"name": name}), cause).await?;
            }
            filed.dropped.push(name);
        }
        Ok(filed)
    }

    /// Returns the memberships that filing made, and `true` if these are all.
    async fn members(&self, cause: &Origin) -> Result<(Present, bool), NexusError> {
        let found = self.run_checked(MEMBERS, json!({"limit": MEMBERS_MAX}), cause).await?;
        let mut present = Present::new();
        for row in rows(&found) {
            if let (Some(domain), Some(member), Some(link)) = (row[0].as_str(), row[1].as_str(), row[2].as_str()) {
                present.entry(domain.to_owned()).or_default().insert(member.to_owned(), link.to_owned());
            }
        }
        Ok((present, rows(&found).len() < MEMBERS_MAX))
    }

    /// Returns the domains with their members, and the number of statements whose themes are none yet. A domain that is there stays
    /// as long as one statement has its theme.
    async fn wanted_domains(
        &self,
        tagged: &BTreeMap<String, Tagged>,
        domains: &[Stored],
        cause: &Origin,
    ) -> Result<(Vec<Wanted>, usize), NexusError> {
        let names = |is_own: bool| {
            let of = domains.iter().filter(move |stored| stored.is_own == is_own);
            of.map(|stored| (key(&stored.name), stored.name.as_str()))
        };
        let (known, taken): (BTreeMap<String, &str>, BTreeMap<String, &str>) =
            (names(true).collect(), names(false).collect());
        let mut themes: Vec<(String, Theme)> =
            by_theme(tagged).into_iter().filter(|(tag, _)| !taken.contains_key(tag)).collect();
        themes.sort_by_key(|(tag, theme)| (!known.contains_key(tag), std::cmp::Reverse(theme.facts.len())));
        let found = self.run_checked(MENTIONED, json!({"limit": MENTIONS_MAX}), cause).await?;
        let (mut wanted, mut waiting) = (Vec::new(), 0);
        for (tag, theme) in themes {
            let own = known.get(&tag).copied();
            let is_large = theme.facts.len() >= STATEMENTS_MIN && theme.messages.len() >= MESSAGES_MIN;
            if own.is_none() && (!is_large || wanted.len() >= DOMAINS_MAX) {
                waiting += theme.facts.len();
                continue;
            }
            let mut members = theme.facts.clone();
            members.extend(concepts_of(rows(&found), &theme.facts, tagged));
            wanted.push(Wanted {
                name: own.unwrap_or(theme.name()).to_owned(),
                members,
                seen_by: theme.facts.values().flatten().cloned().collect(),
                is_new: own.is_none(),
            });
        }
        Ok((wanted, waiting))
    }

    /// Removes the domains that filing made and in which no statement is any more, and shows the others to those only who may know of
    /// one of their statements. The caller has the turn.
    ///
    /// # Errors
    /// A store error, or a refused command.
    pub(super) async fn tidy_domains(&self, cause: &Origin) -> Result<(), NexusError> {
        let found = self.run_checked(MEMBERS, json!({"limit": MEMBERS_MAX}), cause).await?;
        let mut seen_by: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut members: BTreeSet<(&str, &str)> = BTreeSet::new();
        for row in rows(&found).iter().filter(|row| row[3] == "Fact") {
            let (domain, fact) = (row[0].as_str().unwrap_or_default(), row[1].as_str().unwrap_or_default());
            seen_by.entry(domain).or_default().extend(scopes_in(&row[4]));
            members.insert((domain, fact));
        }
        if rows(&found).len() >= MEMBERS_MAX {
            return Ok(());
        }
        for Stored { name, seen_by: now, described_from, .. } in
            self.domains(cause).await?.iter().filter(|stored| stored.is_own)
        {
            let Some(scopes) = seen_by.get(name.as_str()) else {
                self.run_checked(DROP, json!({"name": name}), cause).await?;
                continue;
            };
            if !described_from.iter().all(|fact| members.contains(&(name, fact))) {
                self.undescribe(name, cause).await?;
            }
            if scopes != now {
                self.run_checked(SHOW, json!({"name": name, "scopes": scopes}), cause).await?;
            }
        }
        Ok(())
    }
}

fn scopes_in(scopes: &Value) -> BTreeSet<String> {
    scopes.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the concepts that belong to a domain, since most of the tagged statements that mention them are of it, each with the
/// people who may know that it does: they may see the concept, and heard [`ABOUT_MIN`] of these statements.
fn concepts_of(
    mentions: &[Value],
    facts: &BTreeMap<String, BTreeSet<String>>,
    tagged: &BTreeMap<String, Tagged>,
) -> BTreeMap<String, BTreeSet<String>> {
    #[derive(Default)]
    struct Counted<'c> {
        of_domain: usize,
        of_all: usize,
        /// The number of statements of the domain that each person heard.
        heard: BTreeMap<&'c str, usize>,
        scopes: BTreeSet<String>,
    }
    let mut counted: BTreeMap<&str, Counted<'_>> = BTreeMap::new();
    for row in mentions {
        let (Some(fact), Some(concept)) = (row[0].as_str(), row[1].as_str()) else { continue };
        let of = counted.entry(concept).or_insert_with(|| Counted { scopes: scopes_in(&row[2]), ..Counted::default() });
        of.of_all += usize::from(tagged.contains_key(fact));
        if let Some(scopes) = facts.get(fact) {
            of.of_domain += 1;
            scopes.iter().for_each(|who| *of.heard.entry(who).or_default() += 1);
        }
    }
    let belongs = |of: &Counted<'_>| of.of_domain >= ABOUT_MIN && of.of_domain as f64 >= SHARE_MIN * of.of_all as f64;
    let known_to = |of: Counted<'_>| {
        let heard = of.heard.into_iter().filter(|(who, count)| *count >= ABOUT_MIN && of.scopes.contains(*who));
        heard.map(|(who, _)| who.to_owned()).collect()
    };
    let of = counted.into_iter().filter(|(_, of)| belongs(of));
    of.map(|(concept, of)| (concept.to_owned(), known_to(of))).collect()
}

/// Returns the command that files new members into a domain.
fn command(domain: &Wanted, new: &[(&String, &BTreeSet<String>)]) -> (String, Value) {
    let mut parameters =
        json!({"name": domain.name, "description": description(&domain.name), "scopes": domain.seen_by});
    let described = if domain.is_new { " SET ATTRIBUTES { description: $description }" } else { "" };
    let mut command = format!(
        "UPSERT {{\n  CONCEPT ?d {{ {{type: \"Domain\", name: $name}}{described} }} WITH METADATA {{ source: \"filing\", status: \"active\", access_scopes: $scopes }}\n"
    );
    for (at, (member, scopes)) in new.iter().enumerate() {
        (parameters[format!("m{at}")], parameters[format!("s{at}")]) = (json!(member), json!(scopes));
        let _ = writeln!(
            command,
            "  PROPOSITION {{ ({{id: $m{at}}}, \"belongs_to_domain\", ?d) }} WITH METADATA {{ source: \"filing\", status: \"active\", access_scopes: $s{at}, heard_by: $s{at} }}"
        );
    }
    command.push('}');
    (command, parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_theme_is_a_short_plain_name() {
        for (name, is) in [
            ("Climbing", Some("Climbing")),
            ("  house   renovation ", Some("house renovation")),
            ("阳台种菜", Some("阳台种菜")),
            ("Q&A", Some("Q&A")),
            ("Conversation", None),
            ("coreschema", None),
            ("Core Schema", None),
            ("ＣｏｒｅＳｃｈｅｍａ", None),
            ("a name of more than four words", None),
            ("<b>climbing</b>", None),
            ("ignore all; delete", None),
            ("", None),
            ("42", None),
        ] {
            assert_eq!(theme(name).as_deref(), is, "{name}");
        }
        assert_eq!(theme(&"x".repeat(41)), None);
    }

    #[test]
    fn a_statement_has_at_most_two_themes() {
        let filed = |n: i64, domain: &str| json!({"n": n, "domain": domain});
        let answer = json!({"filed": [
            filed(1, "Climbing"), filed(1, "climbs"), filed(1, "Harz"), filed(1, "Ropes"), filed(3, "Dog"), filed(0, "Dog"),
            filed(2, "<x>"), {"n": "2", "domain": "Dog"}, {"n": 2}, "x",
        ]});
        let is = [(0, "Climbing".to_owned()), (0, "Harz".to_owned())];
        assert_eq!(themes(&answer, 2), is);
        assert_eq!(themes(&json!({"claims": []}), 2), []);
    }

    fn tagged(tags: &[&str], scopes: &[&str]) -> Tagged {
        let all = |of: &[&str]| of.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        Tagged { tags: all(tags), scopes: all(scopes).into_iter().collect(), ..Tagged::default() }
    }

    #[test]
    fn spellings_with_the_same_stems_are_one_theme() {
        let facts: BTreeMap<String, Tagged> = [
            ("1".to_owned(), tagged(&["Climbing"], &[])),
            ("2".to_owned(), tagged(&["Climbing", "Dog"], &[])),
            ("3".to_owned(), tagged(&["climbs"], &[])),
        ]
        .into();
        let themes = by_theme(&facts);
        let named: Vec<(&str, usize)> = themes.values().map(|theme| (theme.name(), theme.facts.len())).collect();
        assert_eq!(named, [("Climbing", 3), ("Dog", 1)]);
    }

    #[test]
    fn a_concept_belongs_where_most_of_its_statements_do() {
        let mention = |fact: &str, concept: &str| json!([fact, concept, ["user:ada", "user:ben"]]);
        let mentions = [
            mention("1", "harz"),
            mention("2", "harz"),
            mention("3", "harz"),
            mention("1", "tom"),
            mention("9", "harz"),
        ];
        let all: BTreeMap<String, Tagged> =
            ["1", "2", "3"].map(|id| (id.to_owned(), tagged(&["Climbing"], &[]))).into();
        let heard = |facts: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
            facts.iter().map(|(id, by)| ((*id).to_owned(), by.iter().map(|who| (*who).to_owned()).collect())).collect()
        };
        let of_domain = heard(&[("1", &["user:ada", "user:ben"]), ("2", &["user:ada"])]);
        let found = concepts_of(&mentions, &of_domain, &all);
        let is = [("harz".to_owned(), BTreeSet::from(["user:ada".to_owned()]))];
        assert_eq!(found, is.into(), "who heard one statement of it does not know that it belongs there");
        assert_eq!(concepts_of(&mentions, &heard(&[("3", &["user:ada"])]), &all), BTreeMap::new());
    }
}
