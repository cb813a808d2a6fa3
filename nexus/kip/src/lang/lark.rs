//! The grammar in Lark's notation, for engines that let a model write nothing else. It is made from the parser's own
//! rules: whatever it lets through parses, but for one thing that no such grammar can say, an UPDATE that sets a key
//! twice.

use super::card::rules;

/// The text around a command, which decides how its strings are quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// By itself.
    Text,
    /// Inside a string of JSON.
    Json,
}

/// The rules, with `command` as the whole. A word is followed by a space, so that two never run together, and there is
/// no other space than one after a mark, in which a small model could lose itself.
pub fn lark(setting: Setting) -> String {
    let mut grammar = String::new();
    for rule in rules().lines() {
        let Some((name, body)) = rule.split_once(" ::= ") else { continue };
        if name != "param" {
            grammar.push_str(&format!("{name}: {}\n", in_lark(&narrowed(name, body))));
        }
    }
    let quote = if setting == Setting::Json { r#"\\""# } else { r#"""# };
    let quoted = |not: &str| format!(r#"/{quote}[^{not}"\\\x00-\x1f]{{0,200}}{quote}/"#);
    for (terminal, pattern) in [
        ("STRING", quoted("").as_str()),
        ("PREDICATE", &quoted("{}")),
        ("VAR", r"/\?[a-z][A-Za-z0-9_]* ?/"),
        ("NAME", "/[a-z][A-Za-z0-9_]* ?/"),
        ("NUMBER", r"/(0|[1-9][0-9]{0,8})(\.[0-9]{1,6})? /"),
        ("WHOLE", "/[1-9][0-9]{0,3} /"),
        ("SPACE", r#"" ""#),
    ] {
        grammar.push_str(&format!("{terminal}: {pattern}\n"));
    }
    grammar
}

/// Returns the body of a rule without what the parser checks and a rule cannot express: values of the caller, values
/// computed from another variable, and hops from more to fewer.
fn narrowed(name: &str, body: &str) -> String {
    match name {
        "value" => body.replace(" | param", ""),
        "compute" => body.replace(" | path", ""),
        "hops" => body.replace(" WHOLE? '}'", " '}'"),
        _ => body.to_owned(),
    }
}

/// The right side of a rule. Lark's words stand in double quotes.
fn in_lark(body: &str) -> String {
    let mut out = String::new();
    let mut parts = body.chars();
    while let Some(c) = parts.next() {
        if c != '\'' {
            out.push(c);
            continue;
        }
        let word: String = parts.by_ref().take_while(|c| *c != '\'').collect();
        if word.ends_with(|c: char| c.is_ascii_alphanumeric()) {
            out.push_str(&format!("\"{word} \""));
        } else {
            out.push_str(&format!("(\"{word}\" SPACE?)"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_there_and_names_only_rules_and_terminals() {
        let grammar = lark(Setting::Text);
        let rules: Vec<(&str, &str)> = grammar.lines().filter_map(|line| line.split_once(": ")).collect();
        let names: Vec<&str> = rules.iter().map(|(name, _)| *name).collect();
        assert!(names.contains(&"command") && names.contains(&"upsert") && !names.contains(&"param"));
        for (name, body) in rules.iter().filter(|(name, _)| name.chars().all(|c| c.is_ascii_lowercase())) {
            let bare: String = body.split('"').step_by(2).collect::<Vec<_>>().join(" ");
            for word in bare.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()) {
                assert!(names.contains(&word), "{name} names {word}");
            }
        }
    }
}
