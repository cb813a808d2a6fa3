//! The interactive shell, with history, tables, and completion of keywords, types, predicates and attributes. A command
//! ends with its last bracket, or with `;`.

use std::borrow::Cow;
use std::process::ExitCode;

use anyhow::Context;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config as LineConfig, Editor, Helper};
use serde_json::Value;

use super::super::say;
use super::{Door, table};
use crate::config::Config;

const KEYWORDS: [&str; 44] = [
    "AS OF SEQ",
    "ASC",
    "ATTRIBUTES",
    "AVG(",
    "CONCEPT",
    "CONFLICTS",
    "CONTAINS(",
    "COUNT(",
    "CURSOR",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DETACH",
    "DISTINCT",
    "DOMAINS",
    "ENDS_WITH(",
    "EXPECT VERSION",
    "EXPLAIN",
    "EXPORT",
    "FILTER(",
    "FIND(",
    "FROM",
    "IN(",
    "INTO",
    "IS_NOT_NULL(",
    "IS_NULL(",
    "LIMIT",
    "MAX(",
    "MERGE CONCEPT",
    "METADATA",
    "MIN(",
    "NOT {",
    "OPTIONAL {",
    "ORDER BY",
    "PRIMER",
    "PROPOSITION",
    "REGEX(",
    "SEARCH",
    "SET",
    "STARTS_WITH(",
    "SUM(",
    "UNION {",
    "UPDATE",
    "UPSERT {",
];

/// The number of concepts per type from which attribute names are collected.
const SAMPLE: usize = 5;
/// The maximum number of types whose attribute names are collected.
const TYPES: usize = 40;

/// The helper of the line editor.
struct Words {
    /// The keywords, and the names that the nexus defines.
    all: Vec<String>,
}

impl Helper for Words {}
impl Hinter for Words {
    type Hint = String;
}
impl Highlighter for Words {}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, pos: usize, _: &rustyline::Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..pos];
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let word = before[start..].to_lowercase();
        let fits = |known: &&String| !word.is_empty() && known.to_lowercase().starts_with(&word);
        Ok((start, self.all.iter().filter(fits).cloned().collect()))
    }
}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if whole(context.input()) { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

/// Returns `true` if every bracket and string of a text is closed.
fn whole(text: &str) -> bool {
    let (mut open, mut in_text, mut escaped) = (0i32, false, false);
    let mut letters = text.chars().peekable();
    while let Some(c) = letters.next() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            _ if in_text => {}
            '/' if letters.peek() == Some(&'/') => letters.by_ref().take_while(|c| *c != '\n').for_each(drop),
            '{' | '(' | '[' => open += 1,
            '}' | ')' | ']' => open -= 1,
            _ => {}
        }
    }
    // A query is incomplete without a WHERE block or a final `;`.
    let word = text.split_whitespace().next().unwrap_or_default().to_uppercase();
    let asks = ["FIND", "EXPLAIN", "UPDATE", "MERGE", "DELETE", "EXPORT"].iter().any(|verb| word.starts_with(verb));
    let said = !asks || text.to_uppercase().contains("WHERE") || text.trim_end().ends_with(';');
    !in_text && open <= 0 && said
}

/// Reads commands until the user leaves.
pub(super) async fn run(door: Door, config: &Config) -> anyhow::Result<ExitCode> {
    let history = config.data.join("kip.history");
    let settings = LineConfig::builder()
        .auto_add_history(true)
        .max_history_size(1000)?
        .completion_type(rustyline::CompletionType::List)
        .build();
    let mut editor: Editor<Words, FileHistory> =
        Editor::with_config(settings).context("this terminal cannot be used for a shell")?;
    editor.set_helper(Some(Words { all: words(&door).await? }));
    let _ = editor.load_history(&history);
    say("KIP. Tab completes, help shows the grammar, Ctrl-D leaves; EXPLAIN FIND(…) shows how a query is answered.");
    loop {
        let line = match editor.readline("kip> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        if line.trim().is_empty() {
            continue;
        }
        if ["exit", "quit", "\\q"].contains(&line.trim()) {
            break;
        }
        if ["help", "?", "\\h"].contains(&line.trim()) {
            say(&nexus::kip::lang::card::card());
            continue;
        }
        match door.ask(&line).await {
            Ok(answer) => say(&shown(&line, &answer)),
            Err(error) => say(&format!("{error:#}")),
        }
    }
    let _ = editor.save_history(&history);
    Ok(ExitCode::SUCCESS)
}

fn shown(command: &str, answer: &Value) -> Cow<'static, str> {
    if let Some(error) = answer.get("error") {
        let text = |key: &str| error[key].as_str().unwrap_or_default();
        let place = match (error["line"].as_u64(), error["column"].as_u64()) {
            (Some(line), Some(column)) => format!(" at {line}:{column}"),
            _ => String::new(),
        };
        let hint = if text("hint").is_empty() { String::new() } else { format!("\n  {}", text("hint")) };
        return format!("{} {}{place}: {}{hint}", text("code"), text("kind"), text("message")).into();
    }
    let mut out = table::of(command, answer)
        .unwrap_or_else(|| serde_json::to_string_pretty(&answer["result"]).unwrap_or_default());
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        out += &format!("\nwarning: {}", warning.as_str().unwrap_or_default());
    }
    out.into()
}

/// Returns the keywords, types, predicates, and the attributes of some concepts of each type.
async fn words(door: &Door) -> anyhow::Result<Vec<String>> {
    let listed = |answer: &Value| -> Vec<String> {
        answer["result"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let types = listed(&door.ask("DESCRIBE CONCEPT TYPES").await?);
    let mut all: Vec<String> = KEYWORDS.iter().map(|word| (*word).to_owned()).collect();
    for kind in types.iter().take(TYPES) {
        let kind = Value::from(kind.as_str());
        let bags = door.ask(&format!("FIND(?x.attributes) WHERE {{ ?x {{type: {kind}}} }} LIMIT {SAMPLE}")).await?;
        all.extend(
            bags["result"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_object)
                .flat_map(|bag| bag.keys().cloned()),
        );
    }
    all.extend(types);
    all.extend(listed(&door.ask("DESCRIBE PROPOSITION TYPES").await?));
    all.sort();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_whole_when_its_brackets_and_strings_are_closed() {
        assert!(whole("DESCRIBE PRIMER") && whole("FIND(?x) WHERE { ?x {name: \"a } \\\" b\"} } // {"));
        assert!(!whole("FIND(?x") && !whole("SEARCH \"open") && !whole("FIND(?x) WHERE {") && !whole("FIND(?x)"));
    }
}
