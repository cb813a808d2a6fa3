//! Secrets in the columns of Markdown tables.

use std::sync::LazyLock;

use regex::Regex;

use super::{KNOWN, is_secret};

/// The header of a table column whose cells are secrets.
static HEAD: LazyLock<Regex> = LazyLock::new(|| {
    let shape = r"(?i)^[*`]{0,3}(?:[a-z0-9]+[ _-])?(?:password|passwort|passwd|passphrase|secret|token|api[ _-]?key|密码|密碼|口令|パスワード|비밀번호)s?[*`]{0,3}$";
    Regex::new(shape).unwrap_or_else(|error| unreachable!("{error}"))
});

/// Returns the cells of a line of a Markdown table, trimmed, each with its position in the line. Returns no cells for
/// any other line.
fn cells(line: &str) -> Vec<(usize, &str)> {
    if !line.contains('|') {
        return Vec::new();
    }
    let inner = line.trim();
    let from = line.find(inner).unwrap_or_default() + usize::from(inner.starts_with('|'));
    let inner = inner.strip_prefix('|').unwrap_or(inner);
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let mut at = from;
    let cell = |part: &str| {
        let begins = at + (part.len() - part.trim_start().len());
        at += part.len() + 1;
        begins
    };
    let begins: Vec<usize> = inner.split('|').map(cell).collect();
    begins.into_iter().zip(inner.split('|').map(str::trim)).collect()
}

/// Replaces the secrets in the columns of Markdown tables whose headers name secrets.
pub(super) fn replaced_in_columns(text: &str, by: &mut dyn FnMut(&'static str, &str) -> String) -> Option<String> {
    let (mut left, mut kept, mut begins) = (String::new(), 0, 0);
    let mut before: Vec<(usize, &str)> = Vec::new();
    let mut columns: Vec<(usize, &str)> = Vec::new();
    for line in text.split_inclusive('\n') {
        let row = cells(line);
        let is_rule = |(_, cell): &(usize, &str)| cell.contains('-') && cell.chars().all(|c| "-: ".contains(c));
        if row.is_empty() {
            columns.clear();
        } else if columns.is_empty() && row.iter().all(is_rule) {
            let heads = before.iter().enumerate().filter(|(_, (_, head))| HEAD.is_match(head));
            columns = heads.map(|(column, (_, head))| (column, *head)).collect();
        } else {
            for (column, head) in &columns {
                let Some((at, cell)) = row.get(*column) else { continue };
                let value = cell.trim_matches(['*', '`']);
                let is_whole = value.len() >= 6 && value.chars().all(|c| c.is_ascii_graphic());
                if !is_whole || KNOWN.is_match(value) || !is_secret(value, head) {
                    continue;
                }
                let from = begins + at + cell.find(value).unwrap_or_default();
                left.push_str(&text[kept..from]);
                left.push_str(&by("password", value));
                kept = from + value.len();
            }
        }
        (before, begins) = (row, begins + line.len());
    }
    left.push_str(&text[kept..]);
    (kept > 0).then_some(left)
}
