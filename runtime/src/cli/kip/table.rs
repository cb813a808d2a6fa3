//! Prints rows as a table, with the FIND expressions as its header.

use nexus::kip::Command;
use nexus::kip::lang::{ast::Find, parse, print};
use serde_json::Value;

/// The invisible characters, and those that change the text direction.
const OVERRIDES: [char; 9] =
    ['\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2069}', '\u{feff}'];
/// The maximum length of a cell, in characters.
const CELL_MAX: usize = 48;

/// Returns an answer with rows as a table; `None` for other answers.
pub(super) fn of(command: &str, answer: &Value) -> Option<String> {
    let rows = answer["result"].as_array()?;
    let Command::Find(find) = parse(command).ok()? else { return None };
    let heads: Vec<String> = find
        .select
        .iter()
        .map(|selected| {
            let alone = Find {
                select: vec![selected.clone()],
                clauses: Vec::new(),
                as_of: None,
                order: Vec::new(),
                limit: None,
                cursor: None,
            };
            let text = print(&Command::Find(alone));
            text.trim_start_matches("FIND(").split(") WHERE").next().unwrap_or_default().to_owned()
        })
        .collect();
    let cell = |value: &Value| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
            .replace(|c: char| c.is_control() || OVERRIDES.contains(&c), " ");
        let cut = text.chars().count() > CELL_MAX;
        if cut { text.chars().take(CELL_MAX - 1).chain(['…']).collect() } else { text }
    };
    let mut lines = vec![heads];
    lines.extend(rows.iter().map(|row| match row {
        Value::Array(cells) if find.select.len() > 1 => cells.iter().map(cell).collect(),
        one => vec![cell(one)],
    }));
    let width = |text: &str| text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>();
    let columns = lines[0].len();
    let widths: Vec<usize> = (0..columns)
        .map(|at| lines.iter().filter_map(|line| line.get(at)).map(|text| width(text)).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for (no, line) in lines.iter().enumerate() {
        let padded: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(text, wide)| format!("{text}{}", " ".repeat(wide - width(text).min(*wide))))
            .collect();
        out += padded.join("  ").trim_end();
        out.push('\n');
        if no == 0 {
            out += &widths.iter().map(|wide| "─".repeat(*wide)).collect::<Vec<_>>().join("  ");
            out.push('\n');
        }
    }
    let more = if answer["next_cursor"].is_string() { ", more with CURSOR" } else { "" };
    Some(format!("{out}({} rows{more})", rows.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_stand_under_what_was_asked() {
        let table = of(
            "FIND(?x.name, COUNT(?y)) WHERE { (?x, \"p\", ?y) }",
            &json!({"result": [["Petrel", 2], ["東京", null]]}),
        );
        assert_eq!(
            table.as_deref(),
            Some("?x.name  COUNT(?y)\n───────  ─────────\nPetrel   2\n東京     null\n(2 rows)")
        );
        assert_eq!(of("DESCRIBE DOMAINS", &json!({"result": ["x"]})), None);
    }
}
