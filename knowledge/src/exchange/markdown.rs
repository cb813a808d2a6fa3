//! Records as Markdown: a header of JSON members between `---` lines, the task as a heading, and the content. In other
//! Markdown, each section becomes a record.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{IMPORTED_MAX, Records, written};
use crate::record::Record;

/// The line before and after a header.
const FENCE: &str = "---";
/// The heading of a text without one.
const UNNAMED: &str = "Notes";

/// Writes a record as Markdown.
pub(super) fn write(record: &Record) -> String {
    let mut head = written(record);
    let (task, content) = (head.remove("task"), head.remove("content"));
    let text = |value: Option<Value>| value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut written = format!("{FENCE}\n");
    for (key, value) in &head {
        // A name that would not be parsed as a name is quoted.
        let key = if is_name(key) { key.clone() } else { Value::from(key.as_str()).to_string() };
        let _ = writeln!(written, "{key}: {value}");
    }
    // A heading has one line, so a task with line breaks or surrounding blanks goes into the header.
    let task = text(task);
    if task.contains('\n') || task.trim() != task {
        let _ = writeln!(written, "task: {}", Value::from(task.as_str()));
    }
    let heading = task.lines().next().unwrap_or_default();
    let _ = write!(written, "{FENCE}\n# {heading}\n\n{}\n", fenced(&text(content)));
    written
}

/// Returns `true` if a line is a fence after any number of backslashes.
fn is_fence(line: &str) -> bool {
    line.trim_start_matches('\\') == FENCE
}

/// Escapes the content: a line that would start a header gets a backslash.
fn fenced(content: &str) -> String {
    let line = |line: &str| if is_fence(line) { format!("\\{line}") } else { line.to_owned() };
    content.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the content without the escapes.
fn unfenced(content: &str) -> String {
    let line = |line: &str| line.strip_prefix('\\').filter(|_| is_fence(line)).unwrap_or(line).to_owned();
    content.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Reads the records in a text.
pub(super) fn read(text: &str) -> Result<Records, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if has_heads(text) {
        return Ok(heads(text));
    }
    // Other editors may write other line ends.
    let text = text.replace("\r\n", "\n");
    if has_heads(&text) { Ok(heads(&text)) } else { sections(&text) }
}

/// Returns the header lines of a record at the start of a text, if there is one. Each line must start with a name, but
/// may have other faults.
fn head(text: &str) -> Option<Vec<&str>> {
    let lines: Vec<&str> = text.strip_prefix("---\n")?.lines().take_while(|line| *line != FENCE).collect();
    let is_named = |line: &&str| line.starts_with('"') || line.split_once(':').is_some_and(|(key, _)| is_name(key));
    (!lines.is_empty() && lines.iter().all(is_named)).then_some(lines)
}

/// Returns `true` if a text consists of records with headers: it starts with one, and one of them is complete. A header
/// of another program does not count.
fn has_heads(text: &str) -> bool {
    let mut later = text.match_indices("\n---\n").map(|(at, _)| at + 1);
    is_head(text) || (head(text).is_some() && later.any(|at| is_head(&text[at..])))
}

/// Returns a text without the YAML front matter of other programs.
fn without_front_matter(text: &str) -> &str {
    let Some((lines, rest)) = text.strip_prefix("---\n").and_then(|text| text.split_once("\n---\n")) else {
        return text;
    };
    let is_yaml =
        |line: &str| line.starts_with([' ', '-', '#']) || line.split_once(':').is_some_and(|(key, _)| is_name(key));
    if lines.lines().all(is_yaml) { rest } else { text }
}

/// Returns `true` if a text starts with the complete header of a record.
fn is_head(text: &str) -> bool {
    head(text).is_some_and(|lines| lines.iter().all(|line| member(line).is_some()))
}

/// Returns `true` if the name of a member needs no quotes in a header.
fn is_name(key: &str) -> bool {
    !key.is_empty() && !key.starts_with('"') && !key.contains(|c: char| c.is_whitespace() || c.is_control() || c == ':')
}

/// Parses a line of a header.
fn member(line: &str) -> Option<(String, Value)> {
    let (key, value) = if line.starts_with('"') {
        let mut texts = serde_json::Deserializer::from_str(line).into_iter::<String>();
        let key = texts.next()?.ok()?;
        (key, line[texts.byte_offset()..].strip_prefix(": ")?)
    } else {
        let (key, value) = line.split_once(": ").filter(|(key, _)| is_name(key))?;
        (key.to_owned(), value)
    };
    Some((key, serde_json::from_str(value).ok()?))
}

fn heads(text: &str) -> Records {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(inner) = rest.strip_prefix("---\n").filter(|_| found.len() <= IMPORTED_MAX) {
        let Some((lines, body)) = inner.split_once("\n---\n") else {
            found.push(Err("has a head that does not end".to_owned()));
            break;
        };
        // The next header starts at a fence with header lines after it; a horizontal rule in a content is none.
        let next = body.match_indices("\n---\n").map(|(at, _)| at + 1).find(|at| head(&body[*at..]).is_some());
        let (body, after) = body.split_at(next.unwrap_or(body.len()));
        rest = after;
        let members: Vec<Option<(String, Value)>> = lines.lines().map(member).collect();
        if let Some(at) = members.iter().position(Option::is_none) {
            found.push(Err(format!("has a head whose line {} is no member: a name, a colon, and JSON", at + 1)));
            continue;
        }
        let mut record: Map<String, Value> = members.into_iter().flatten().collect();
        let body = body.trim_start_matches('\n');
        let (heading, content) = body.split_once('\n').unwrap_or((body, ""));
        if let Some(task) = heading.strip_prefix("# ") {
            record.entry("task").or_insert_with(|| task.trim().into());
            let content = content.strip_prefix('\n').unwrap_or(content);
            let content = content.strip_suffix('\n').unwrap_or(content);
            // An empty line separates two records.
            let content = if next.is_some() { content.strip_suffix('\n').unwrap_or(content) } else { content };
            record.insert("content".to_owned(), unfenced(content).into());
            found.push(Ok(record));
        } else {
            found.push(Err("has a head and no heading after it".to_owned()));
        }
    }
    found
}

/// Reads each section as a record, named by the headings above it.
fn sections(text: &str) -> Result<Records, String> {
    let text = without_front_matter(text);
    let mut found: Records = Vec::new();
    let (mut path, mut content, mut is_code): (Vec<(usize, String)>, String, bool) = (Vec::new(), String::new(), false);
    let mut has_heading = false;
    let mut end = |path: &[(usize, String)], content: &mut String| {
        let said = std::mem::take(content).trim().to_owned();
        if !said.is_empty() {
            let titles: Vec<&str> = path.iter().map(|(_, title)| title.as_str()).collect();
            let task = if titles.is_empty() { UNNAMED.to_owned() } else { titles.join(" › ") };
            let record = json!({"task": task, "content": said, "types": ["definition"]});
            found.extend(record.as_object().cloned().map(Ok));
        }
        found.len()
    };
    for line in text.lines() {
        let depth = line.chars().take_while(|c| *c == '#').count();
        let title = line[depth..].strip_prefix(' ').map(str::trim);
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        match title.filter(|title| !is_code && (1..=6).contains(&depth) && !title.is_empty()) {
            Some(title) => {
                has_heading = true;
                // One section more than the maximum is read, to detect that there are too many.
                if end(&path, &mut content) > IMPORTED_MAX {
                    break;
                }
                path.retain(|(above, _)| *above < depth);
                path.push((depth, title.to_owned()));
            }
            None => {
                content.push_str(line);
                content.push('\n');
            }
        }
    }
    end(&path, &mut content);
    if has_heading {
        Ok(found)
    } else {
        Err("has no heading: each section becomes a record, named by its headings".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_markdown_head_fails_only_its_own_record() {
        let whole = |id: &str| format!("---\nid: \"{id}\"\ntypes: [\"tool\"]\n---\n# {id}\n\ncontent of {id}\n\n");
        let text =
            format!("{}---\nid: \"b\"\ntypes: [tool\n---\n# b\n\nlost\n\n{}---\nid: \"d\"\n", whole("a"), whole("c"));
        let found = read(&text).unwrap();
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(found[0].as_ref().unwrap()["content"], "content of a");
        assert!(found[1].as_ref().unwrap_err().contains("line 2"), "{found:?}");
        assert_eq!(found[2].as_ref().unwrap()["content"], "content of c");
        assert!(found[3].as_ref().unwrap_err().contains("does not end"), "{found:?}");
        let first = format!("---\nid: a\n---\n# a\n\nlost\n\n{}", whole("b"));
        let found = read(&first).unwrap();
        assert!(found.len() == 2 && found[0].is_err() && found[1].is_ok(), "{found:?}");
        let notes = read("---\ntitle: My notes\ntags:\n  - a\n---\n# A\n\ntext\n").unwrap();
        assert!(notes.len() == 1 && notes[0].as_ref().unwrap()["task"] == "A", "{notes:?}");
        let ruler = format!("{}---\njust a ruler\n---\nend\n", whole("a"));
        assert_eq!(read(&ruler).unwrap().len(), 1);
    }
}
