//! The grammar card: a description of the language for prompts in few tokens. It is generated from the parser's own
//! rules, so it always matches the parser.

use std::sync::LazyLock;

use super::parser::RULES;

/// Returns the rules of the grammar, one per line, taken from the comments above the parser's functions.
/// The lines of a comment that follow a rule belong to the rule.
pub fn rules() -> &'static str {
    static CARD: LazyLock<String> = LazyLock::new(|| {
        let (mut rules, mut in_a_rule) = (String::new(), false);
        for line in RULES.iter().flat_map(|source| source.lines()) {
            match line.strip_prefix("// ") {
                Some(rule) if rule.contains(" ::= ") => {
                    rules.push_str(if rules.is_empty() { "" } else { "\n" });
                    rules.push_str(rule);
                    in_a_rule = true;
                }
                Some(more) if in_a_rule => {
                    rules.push(' ');
                    rules.push_str(more);
                }
                _ => in_a_rule = false,
            }
        }
        rules.push('\n');
        rules
    });
    &CARD
}

/// Returns the card: the rules, explanations that a rule cannot express, and one example of each kind of command.
///
/// ```
/// let card = kip::lang::card::card();
/// assert!(card.contains("UPSERT") && card.contains("FIND"));
/// ```
pub fn card() -> String {
    format!("{}\n{}", rules(), EXAMPLES)
}

/// The explanations and examples. A test parses every example.
const EXAMPLES: &str = r#"// VAR is ?x, STRING is in double quotes and so is a PREDICATE's name, NAME is letters, digits and '_', NUMBER as in JSON, WHOLE a whole one from 1; $name stands for a parameter. A type or predicate must be defined before it is used.
// Attributes are ?x.attributes.key, metadata ?x.metadata.key. One FIND expression answers bare values, several answer rows.
SEARCH CONCEPT "aspirin" LIMIT 5
DESCRIBE CONCEPT TYPES
FIND(?d.name, ?d.attributes.risk_level) WHERE { ?d {type: "Drug"} (?d, "treats", {name: "Headache"}) FILTER(?d.attributes.risk_level < 4) } ORDER BY ?d.attributes.risk_level LIMIT 20
UPSERT { CONCEPT ?d { {type: "Drug", name: "Aspirin"} SET ATTRIBUTES { risk_level: 2 } SET PROPOSITIONS { ("treats", {type: "Symptom", name: "Headache"}) } } } WITH METADATA { source: "…", confidence: 0.9 }
UPDATE ?d SET ATTRIBUTES { seen: ADD(?d.attributes.seen, 1) } WHERE { ?d {type: "Drug", name: "Aspirin"} }
DELETE CONCEPT ?d DETACH WHERE { ?d {type: "Drug", name: "Aspirin"} }
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_names_every_command_and_its_examples_parse() {
        for word in
            ["'FIND'", "'UPSERT'", "'UPDATE'", "'MERGE'", "'DELETE'", "'EXPORT'", "'DESCRIBE'", "'SEARCH'", "'EXPLAIN'"]
        {
            assert!(rules().contains(word), "{word}");
        }
        for rule in rules().lines() {
            let unquoted: String = rule.split('\'').step_by(2).collect();
            let count = |bracket| unquoted.matches(bracket).count();
            assert!(rule.contains(" ::= ") && count('(') == count(')'), "a rule is cut: {rule}");
        }
        let examples: Vec<&str> = EXAMPLES.lines().filter(|line| !line.starts_with("//")).collect();
        assert_eq!(examples.len(), 6);
        for example in examples {
            super::super::parse(example).unwrap();
        }
    }
}
