//! `lifeformd knowledge`: exports records to files and imports them.

use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use knowledge::exchange::IMPORTED_MAX;
use serde_json::{Map, Value, json};

use super::client::Client;
use super::say;
use crate::config::Config;

/// The format with one file per record.
const TREE: &str = "tree";
/// The format with one record per line.
const LINES: &str = "jsonl";
/// The maximum size of the lines in one request, in bytes: half of the server's limit.
const PART_BYTES_MAX: usize = 32 << 20;

#[derive(Subcommand)]
pub(super) enum Knowledge {
    /// Exports records to a file (jsonl, units or markdown) or to a folder of files (tree).
    Export {
        /// The format: jsonl, tree, units or markdown.
        #[arg(long, default_value = "jsonl")]
        format: String,
        /// The owner (default: all records that the token can see).
        #[arg(long)]
        owner: Option<String>,
        /// The file to write, or the folder of a tree (default: standard output).
        #[arg(short, long)]
        output: Option<PathBuf>,
    },
    /// Imports records from a file, or from a folder of files.
    Import {
        /// The format: jsonl, tree, units, markdown, mem0 or letta.
        #[arg(long, default_value = "jsonl")]
        format: String,
        /// Prints the result without writing.
        #[arg(long)]
        dry_run: bool,
        /// The file, or the folder of a tree.
        from: PathBuf,
    },
}

pub(super) async fn run(config: Config, command: Knowledge) -> anyhow::Result<ExitCode> {
    let client = Client::new(&config)?;
    match command {
        Knowledge::Export { format, owner, output } => {
            let asked: Vec<(&str, &str)> = [("format", Some(format.as_str())), ("owner", owner.as_deref())]
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)))
                .collect();
            let text = client.get_text("/api/knowledge/export", &asked).await?;
            match output {
                None => say(text.trim_end()),
                Some(folder) if format == TREE => {
                    let files: Map<String, Value> = serde_json::from_str(&text)?;
                    write_tree(&folder, &files)?;
                    say(&format!("{} files in {}", files.len(), folder.display()));
                }
                Some(file) => {
                    std::fs::write(&file, text).with_context(|| format!("{} cannot be written", file.display()))?;
                }
            }
            Ok(ExitCode::SUCCESS)
        }
        Knowledge::Import { format, dry_run, from } => {
            let text = match from.is_dir() {
                true if format != TREE => {
                    anyhow::bail!("{} is a folder, and {format} is one file: --format {TREE} reads it", from.display())
                }
                true => Value::Object(read_tree(&from)?).to_string(),
                false => {
                    std::fs::read_to_string(&from).with_context(|| format!("{} cannot be read", from.display()))?
                }
            };
            let path = format!("/api/knowledge/import?format={format}&dry_run={dry_run}");
            let mut answer = Value::Null;
            for (first, part) in parts(&format, text) {
                let done = match client.send_text(&path, part).await {
                    Ok(done) => done,
                    Err(error) if answer.is_null() => return Err(error),
                    // The result so far is printed.
                    Err(error) => {
                        say(&serde_json::to_string_pretty(&answer)?);
                        return Err(error.context(format!("items from {first} on")));
                    }
                };
                answer = if answer.is_null() { done } else { together(answer, done, first) };
                if answer.get("stopped").is_some() {
                    break;
                }
            }
            say(&serde_json::to_string_pretty(&answer)?);
            Ok(if answer["refused"] == 0 && answer.get("stopped").is_none() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
    }
}

/// Splits a text into requests, each with the number of records before it.
fn parts(format: &str, text: String) -> Vec<(usize, String)> {
    if format != LINES {
        return vec![(0, text)];
    }
    let (mut parts, mut count): (Vec<(usize, String)>, usize) = (Vec::new(), 0);
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match parts.last_mut() {
            Some((first, part)) if count - *first < IMPORTED_MAX && part.len() + line.len() < PART_BYTES_MAX => {
                part.push('\n');
                part.push_str(line);
            }
            _ => parts.push((count, line.to_owned())),
        }
        count += 1;
    }
    // The server refuses an empty text.
    if parts.is_empty() { vec![(0, text)] } else { parts }
}

/// Combines the results so far with the result of the next request. `first` records came before it.
fn together(mut answer: Value, mut next: Value, first: usize) -> Value {
    for count in ["imported", "unchanged", "refused"] {
        answer[count] = json!(answer[count].as_u64().unwrap_or(0) + next[count].as_u64().unwrap_or(0));
    }
    if let Some(mut stopped) = next.get("stopped").cloned() {
        stopped["at"] = json!(stopped["at"].as_u64().unwrap_or(0) + first as u64);
        answer["stopped"] = stopped;
    }
    for error in next["errors"].as_array_mut().into_iter().flatten() {
        error["at"] = json!(error["at"].as_u64().unwrap_or(0) + first as u64);
    }
    for list in ["errors", "warnings"] {
        let more = next[list].take();
        if let (Some(all), Value::Array(more)) = (answer[list].as_array_mut(), more) {
            for one in more {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
    }
    answer
}

/// Writes files below a folder, and none outside it.
fn write_tree(folder: &Path, files: &Map<String, Value>) -> anyhow::Result<()> {
    for (path, records) in files {
        let path = Path::new(path);
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
        anyhow::ensure!(is_below, "{} would not be in {}", path.display(), folder.display());
        let file = folder.join(path);
        let parent = file.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).with_context(|| format!("{} cannot be made", parent.display()))?;
        std::fs::write(&file, serde_json::to_string_pretty(records)?)
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    Ok(())
}

/// Reads the JSON files below a folder, by path.
fn read_tree(folder: &Path) -> anyhow::Result<Map<String, Value>> {
    let mut files = Map::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(inner) = folders.pop() {
        let entries = std::fs::read_dir(&inner).with_context(|| format!("{} cannot be read", inner.display()))?;
        for entry in entries {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            if kind.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "json") {
                let bytes = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
                let text = String::from_utf8_lossy(&bytes).into_owned();
                // A file that is not JSON is counted as refused and does not affect the others.
                let records = serde_json::from_str(&text).unwrap_or(Value::String(text));
                let below = path.strip_prefix(folder).unwrap_or(&path);
                files.insert(below.to_string_lossy().replace('\\', "/"), records);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cli_splits_a_long_import_and_merges_the_answers() {
        let text = (0..=2 * IMPORTED_MAX).map(|at| format!("{{\"id\":\"{at}\"}}\n\n")).collect::<String>();
        let sent = parts(LINES, text.clone());
        assert_eq!(sent.iter().map(|(first, _)| *first).collect::<Vec<_>>(), [0, IMPORTED_MAX, 2 * IMPORTED_MAX]);
        assert_eq!((sent[2].1.as_str(), parts("units", text).len()), ("{\"id\":\"20000\"}", 1));
        let answer = |at: u64| {
            json!({
                "imported": 1,
                "unchanged": 2,
                "refused": 1,
                "errors": [{"at": at, "error": "no"}],
                "warnings": ["w"],
            })
        };
        let all = together(answer(3), answer(4), IMPORTED_MAX);
        assert_eq!((&all["imported"], &all["errors"][1]["at"]), (&json!(2), &json!(10_004)));
        assert_eq!(all["warnings"], json!(["w"]));
        let mut cut = answer(5);
        cut["stopped"] = json!({"at": 7, "error": "full"});
        assert_eq!(together(all, cut, 2 * IMPORTED_MAX)["stopped"]["at"], 20_007);
    }
}
