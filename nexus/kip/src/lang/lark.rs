//! The grammar in Lark's notation, for engines that restrict a model's output to a grammar. It is generated from the
//! parser's own rules. All generated texts parse, except for one condition that such a grammar cannot express: an
//! UPDATE must not set a key twice.

use super::card::rules;

/// The context of a command, which decides how its strings are quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A command by itself.
    Text,
    /// A command inside a JSON string.
    Json,
}

/// Returns the grammar with `command` as the start rule. A word is followed by a space, so that two words never run
/// together. The only other space allowed is one after a mark; a small model could otherwise generate white space
/// endlessly.
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

/// Returns the body of a rule, narrowed to constraints that the parser checks and a rule cannot express. It omits
/// placeholders, values computed from another variable, and hops whose maximum is below the minimum.
fn narrowed(name: &str, body: &str) -> String {
    match name {
        "value" => body.replace(" | param", ""),
        "compute" => body.replace(" | path", ""),
        "hops" => body.replace(" WHOLE? '}'", " '}'"),
        _ => body.to_owned(),
    }
}

/// Converts the right side of a rule. Lark's literals are in double quotes.
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
