//! The filing of what was learned into domains. The model that reads statements for claims names the theme of each
//! (`relevance_tags`); themes with enough statements become domains, by rule. `docs/src/internals/knowing.md` explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use nexus::kip::graph::text::terms;
use nexus::{NexusError, Request};
use serde_json::{Value, json};
use store::Origin;

use super::resolving::plain;
use crate::memory::{Memory, StoredFact, rows};

/// The source of the domains and memberships that filing makes.
const FILING: &str = "filing";
/// The numbers of statements, and of messages that state them, from which a theme becomes a domain.
const STATEMENTS_MIN: usize = 8;
const MESSAGES_MIN: usize = 3;
/// The maximum number of domains of a mind that filing makes.
const DOMAINS_MAX: usize = 24;
/// The maximum number of statements that one run looks at, and of memberships that it writes.
const FACTS_MAX: usize = 10_000;
const FILED_MAX: usize = 500;
/// The share of the tagged statements about a concept that must be of a domain, and their number.
const SHARE_MIN: f64 = 0.6;
const ABOUT_MIN: usize = 2;
/// The share of the statements of a theme that have another theme, too, from which the two are one domain.
const SAME_SHARE: f64 = 0.6;
/// The bounds of a name, in characters and words.
const NAME_CHARS_MAX: usize = 40;
const NAME_WORDS_MAX: usize = 4;
/// The maximum number of themes of a statement.
const THEMES_MAX: usize = 2;
/// The domains that every mind has.
const RESERVED: [&str; 3] = ["CoreSchema", "Conversation", "Knowledge"];

const TAGGED: &str = r#"FIND(?f) WHERE { ?f {type: "Fact"} FILTER(?f.metadata.status == "active" && IS_NOT_NULL(?f.metadata.relevance_tags)) } LIMIT $limit"#;
const TAG: &str = r#"UPDATE ?f SET METADATA { relevance_tags: $tags } WHERE { ?f {id: $fact} }"#;
const MENTIONED: &str = r#"FIND(?f.id, ?e.id, ?e.metadata.access_scopes) WHERE { (?f, "mentions", ?e) } LIMIT $limit"#;
const DOMAINS: &str = r#"FIND(?d) WHERE { ?d {type: "Domain"} }"#;
const MEMBERS: &str = r#"FIND(?d.name, ?x.id, ?l.id) WHERE { ?d {type: "Domain"} FILTER(?d.metadata.source == "filing") ?l (?x, "belongs_to_domain", ?d) } LIMIT $limit"#;
const LEAVE: &str = r#"DELETE PROPOSITIONS ?l WHERE { ?l (id: $link) }"#;
const DROP: &str = r#"DELETE CONCEPT ?d DETACH WHERE { ?d {type: "Domain", name: $name} }"#;

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
fn theme(name: &str) -> Option<String> {
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_plain = |c: char| c.is_alphanumeric() || " -&'’・·".contains(c);
    let is_short = name.chars().count() <= NAME_CHARS_MAX && name.split(' ').count() <= NAME_WORDS_MAX;
    let is_reserved = RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(&name));
    let is_name = is_short && !is_reserved && name.chars().all(is_plain) && name.chars().any(char::is_alphabetic);
    is_name.then_some(name)
}

/// Returns the key under which two spellings of a theme are one: "Climbing" and "climbs".
fn key(name: &str) -> String {
    let stems: BTreeSet<String> = terms(name).into_iter().map(|term| term.to_string()).collect();
    if stems.is_empty() { plain(name) } else { stems.into_iter().collect::<Vec<_>>().join(" ") }
}

/// A theme with its statements.
#[derive(Clone, Debug, Default, PartialEq)]
struct Theme {
    /// The spellings, each with its number of statements.
    names: BTreeMap<String, usize>,
    /// The ids of the statements.
    facts: BTreeSet<String>,
    messages: BTreeSet<String>,
}

impl Theme {
    /// Returns the most frequent spelling.
    fn name(&self) -> &str {
        let most = self.names.iter().max_by(|(one, many), (other, more)| many.cmp(more).then(other.cmp(one)));
        most.map_or("", |(name, _)| name)
    }

    fn take_in(&mut self, other: Self) {
        for (name, count) in other.names {
            *self.names.entry(name).or_default() += count;
        }
        self.facts.extend(other.facts);
        self.messages.extend(other.messages);
    }
}

/// Merges the themes that are one: of the smaller, most statements have the larger one, too.
fn merged(mut themes: Vec<(String, Theme)>) -> Vec<(String, Theme)> {
    themes
        .sort_by(|(one, of_one), (other, of_other)| of_other.facts.len().cmp(&of_one.facts.len()).then(one.cmp(other)));
    let mut kept: Vec<(String, Theme)> = Vec::new();
    for (key, theme) in themes {
        let is_of = |(_, larger): &&mut (String, Theme)| {
            let shared = theme.facts.intersection(&larger.facts).count() as f64;
            shared >= SAME_SHARE * theme.facts.len() as f64
        };
        match kept.iter_mut().find(|larger| is_of(larger)) {
            Some((_, larger)) => larger.take_in(theme),
            None => kept.push((key, theme)),
        }
    }
    kept
}

/// A domain as filing wants it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wanted {
    name: String,
    aliases: Vec<String>,
    /// The members, each with the people who may know of it.
    members: BTreeMap<String, BTreeSet<String>>,
    is_new: bool,
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
    /// The names of domains that have no members any more.
    dropped: Vec<String>,
    /// The number of statements with a theme that is no domain yet.
    waiting: usize,
}

impl Memory {
    /// Writes the themes of a statement.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn tag(&self, fact: &str, themes: &[&str], cause: &Origin) -> Result<(), NexusError> {
        self.ask(TAG, json!({"fact": fact, "tags": themes}), cause).await.map(drop)
    }

    /// Returns the names of the themes that statements have, those with the most statements first.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn known_themes(&self, cause: &Origin) -> Result<Vec<String>, NexusError> {
        let mut themes: Vec<(String, Theme)> = self.themes(cause).await?.into_iter().collect();
        themes.sort_by_key(|(key, theme)| (std::cmp::Reverse(theme.facts.len()), key.clone()));
        Ok(themes.iter().take(DOMAINS_MAX).map(|(_, theme)| theme.name().to_owned()).collect())
    }

    async fn themes(&self, cause: &Origin) -> Result<BTreeMap<String, Theme>, NexusError> {
        let found = self.ask(TAGGED, json!({"limit": FACTS_MAX}), cause).await?;
        let mut themes: BTreeMap<String, Theme> = BTreeMap::new();
        for row in rows(&found) {
            let fact = StoredFact::of(row);
            let tags = row["metadata"]["relevance_tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for tag in tags.filter(|_| fact.holds_at(self.now())) {
                let theme = themes.entry(key(tag)).or_default();
                *theme.names.entry(tag.to_owned()).or_default() += 1;
                theme.facts.insert(fact.id().to_owned());
                theme.messages.insert(fact.message().unwrap_or(fact.id()).to_owned());
            }
        }
        Ok(themes)
    }

    /// Files the statements that have a theme, and the concepts that they mention, into domains. Themes with few statements wait;
    /// a domain whose statements were forgotten goes. A trial changes nothing and returns the same.
    ///
    /// # Errors
    /// A store error.
    pub(crate) async fn file(&self, is_trial: bool, cause: &Origin) -> Result<Filed, NexusError> {
        let _turn = self.take_turn().await;
        let wanted = self.wanted_domains(cause).await?;
        let mut filed = Filed { waiting: wanted.1, ..Filed::default() };
        let mut left = FILED_MAX;
        let found = self.ask(MEMBERS, json!({"limit": FACTS_MAX}), cause).await?;
        let mut present: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
        for row in rows(&found) {
            let (Some(domain), Some(member), Some(link)) = (row[0].as_str(), row[1].as_str(), row[2].as_str()) else {
                continue;
            };
            present.entry(domain).or_default().insert(member, link);
        }
        for domain in &wanted.0 {
            let known = present.remove(&*domain.name).unwrap_or_default();
            let new: Vec<(&String, &BTreeSet<String>)> =
                domain.members.iter().filter(|(id, _)| !known.contains_key(id.as_str())).take(left).collect();
            for (_, link) in known.iter().filter(|(id, _)| !domain.members.contains_key(**id)) {
                if !is_trial {
                    self.ask(LEAVE, json!({"link": link}), cause).await?;
                }
                filed.ended += 1;
            }
            if new.is_empty() {
                continue;
            }
            (left, filed.filed) = (left - new.len(), filed.filed + new.len());
            filed.made.extend(domain.is_new.then(|| domain.name.clone()));
            if is_trial {
                continue;
            }
            let (command, parameters) = command(domain, &new);
            let answer = self.execute(Request::with(command, parameters), cause).await?;
            if let Some(error) = answer.get("error") {
                return Err(NexusError::Refused(format!("a domain is refused: {error}")));
            }
        }
        for name in present.keys() {
            if !is_trial {
                self.ask(DROP, json!({"name": name}), cause).await?;
            }
            filed.dropped.push((*name).to_owned());
        }
        Ok(filed)
    }

    /// Removes the domains that filing made and in which no statement is any more. The caller has the turn.
    ///
    /// # Errors
    /// A store error.
    pub(super) async fn drop_empty_domains(&self, cause: &Origin) -> Result<(), NexusError> {
        const EMPTY: &str = r#"FIND(?d.name) WHERE { ?d {type: "Domain"} FILTER(?d.metadata.source == "filing") NOT { ?f {type: "Fact"} (?f, "belongs_to_domain", ?d) } }"#;
        for name in rows(&self.ask(EMPTY, json!({}), cause).await?) {
            self.ask(DROP, json!({"name": name}), cause).await?;
        }
        Ok(())
    }

    /// Returns the domains with their members, and the number of statements whose themes are none yet.
    async fn wanted_domains(&self, cause: &Origin) -> Result<(Vec<Wanted>, usize), NexusError> {
        let found = self.ask(DOMAINS, json!({}), cause).await?;
        let domains = rows(&found);
        // A theme that was merged into a domain stays there.
        let mut domain_of: BTreeMap<String, &str> = BTreeMap::new();
        let own = |domain: &&Value| domain["metadata"]["source"] == FILING;
        for domain in domains.iter().filter(own) {
            let Some(name) = domain["name"].as_str() else { continue };
            let aliases = domain["attributes"]["aliases"].as_array().into_iter().flatten().filter_map(Value::as_str);
            domain_of.extend(aliases.chain([name]).map(|alias| (key(alias), name)));
        }
        let taken: BTreeSet<String> = domains
            .iter()
            .filter(|domain| !own(domain))
            .filter_map(|domain| domain["name"].as_str())
            .map(key)
            .collect();
        let mut themes: BTreeMap<String, Theme> = BTreeMap::new();
        for (tag, theme) in self.themes(cause).await? {
            let tag = domain_of.get(&tag).map_or(tag, |name| key(name));
            if !taken.contains(&tag) {
                themes.entry(tag).or_default().take_in(theme);
            }
        }
        let (mut wanted, mut waiting) = (Vec::new(), 0);
        let scopes = self.scopes_of_facts(cause).await?;
        let mentions = self.ask(MENTIONED, json!({"limit": FACTS_MAX}), cause).await?;
        let tagged: BTreeSet<String> = themes.values().flat_map(|theme| theme.facts.iter().cloned()).collect();
        for (tag, theme) in merged(themes.into_iter().collect()) {
            let known = domain_of.get(&tag).copied();
            let is_large = theme.facts.len() >= STATEMENTS_MIN && theme.messages.len() >= MESSAGES_MIN;
            if (known.is_none() && !is_large) || wanted.len() == DOMAINS_MAX {
                waiting += theme.facts.len();
                continue;
            }
            let name = known.unwrap_or(theme.name()).to_owned();
            let aliases = theme.names.keys().filter(|alias| **alias != name).cloned().collect();
            let of = |fact: &String| (fact.clone(), scopes.get(fact).cloned().unwrap_or_default());
            let mut members: BTreeMap<String, BTreeSet<String>> = theme.facts.iter().map(of).collect();
            members.extend(concepts_of(rows(&mentions), &theme.facts, &tagged));
            wanted.push(Wanted { name, aliases, members, is_new: known.is_none() });
        }
        Ok((wanted, waiting))
    }

    async fn scopes_of_facts(&self, cause: &Origin) -> Result<BTreeMap<String, BTreeSet<String>>, NexusError> {
        let found = self.ask(TAGGED, json!({"limit": FACTS_MAX}), cause).await?;
        let of = |row: &Value| Some((row["id"].as_str()?.to_owned(), scopes_in(&row["metadata"]["access_scopes"])));
        Ok(rows(&found).iter().filter_map(of).collect())
    }
}

fn scopes_in(scopes: &Value) -> BTreeSet<String> {
    scopes.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the concepts that belong to a domain: most of the tagged statements that mention them are of it.
fn concepts_of(
    mentions: &[Value],
    facts: &BTreeSet<String>,
    tagged: &BTreeSet<String>,
) -> BTreeMap<String, BTreeSet<String>> {
    let mut counted: BTreeMap<&str, (usize, usize, &Value)> = BTreeMap::new();
    for row in mentions {
        let (Some(fact), Some(concept)) = (row[0].as_str(), row[1].as_str()) else { continue };
        let (of_domain, of_all, _) = counted.entry(concept).or_insert((0, 0, &row[2]));
        *of_domain += usize::from(facts.contains(fact));
        *of_all += usize::from(tagged.contains(fact));
    }
    let belongs =
        |(of_domain, of_all): (usize, usize)| of_domain >= ABOUT_MIN && of_domain as f64 >= SHARE_MIN * of_all as f64;
    let of = counted.into_iter().filter(|(_, (of_domain, of_all, _))| belongs((*of_domain, *of_all)));
    of.map(|(concept, (_, _, scopes))| (concept.to_owned(), scopes_in(scopes))).collect()
}

/// Returns the command that files new members into a domain. A person who may know of a member may see the domain.
fn command(domain: &Wanted, new: &[(&String, &BTreeSet<String>)]) -> (String, Value) {
    let seen_by: BTreeSet<&String> = domain.members.values().flatten().collect();
    let mut parameters = json!({
        "name": domain.name, "aliases": domain.aliases, "description": format!("What was told about {}.", domain.name),
        "scopes": seen_by,
    });
    let mut command = "UPSERT {\n  CONCEPT ?d { {type: \"Domain\", name: $name} SET ATTRIBUTES { description: $description, aliases: $aliases } } WITH METADATA { source: \"filing\", status: \"active\", access_scopes: $scopes }\n".to_owned();
    for (at, (member, scopes)) in new.iter().enumerate() {
        (parameters[format!("m{at}")], parameters[format!("s{at}")]) = (json!(member), json!(scopes));
        let _ = writeln!(
            command,
            "  PROPOSITION {{ ({{id: $m{at}}}, \"belongs_to_domain\", ?d) }} WITH METADATA {{ source: \"filing\", status: \"active\", access_scopes: $s{at} }}"
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

    fn of(name: &str, facts: &[&str]) -> (String, Theme) {
        let facts: BTreeSet<String> = facts.iter().map(|fact| (*fact).to_owned()).collect();
        let names = [(name.to_owned(), facts.len())].into();
        (key(name), Theme { names, messages: facts.clone(), facts })
    }

    #[test]
    fn themes_with_the_same_statements_are_one() {
        let themes = vec![of("Ropes", &["1", "2", "9"]), of("Climbing", &["1", "2", "3", "4"]), of("Dog", &["5", "6"])];
        let merged: Vec<(String, usize)> =
            merged(themes).iter().map(|(_, theme)| (theme.name().to_owned(), theme.facts.len())).collect();
        assert_eq!(merged, [("Climbing".to_owned(), 5), ("Dog".to_owned(), 2)]);
    }

    #[test]
    fn a_concept_belongs_where_most_of_its_statements_do() {
        let mention = |fact: &str, concept: &str| json!([fact, concept, ["user:ada"]]);
        let mentions = [
            mention("1", "harz"),
            mention("2", "harz"),
            mention("3", "harz"),
            mention("1", "tom"),
            mention("9", "harz"),
        ];
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<BTreeSet<_>>();
        let found = concepts_of(&mentions, &set(&["1", "2"]), &set(&["1", "2", "3"]));
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            ["harz"],
            "one statement is too few, and one without a theme counts not"
        );
        assert_eq!(concepts_of(&mentions, &set(&["3"]), &set(&["1", "2", "3"])), BTreeMap::new());
    }
}
