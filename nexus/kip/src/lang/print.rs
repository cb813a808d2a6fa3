//! Prints a syntax tree as text in one canonical form: upper-case keywords, and quoted keys where a bare key would
//! not parse. `parse(print(tree)) == tree`.

use std::fmt::Write;

use super::ast::{
    Block, Clause, Command, Comparison, Compute, ConceptPattern, Deleted, Describe, Expr, Find, Hops, Identity, Lit,
    Object, Page, Path, Placed, Predicate, PropositionPattern, Selected, Term,
};

/// Returns the text of `command`.
///
/// ```
/// use kip::lang::{parse, print};
/// let printed = print(&parse(r#"search   concept "ship" limit 1"#).unwrap());
/// assert_eq!(print(&parse(&printed).unwrap()), printed);
/// ```
pub fn print(command: &Command<'_>) -> String {
    let mut out = Printer(String::new());
    out.command(command);
    out.0
}

/// Writes `key` without quotes if it is a valid bare key.
pub(crate) fn print_key(key: &str, out: &mut String) {
    let bare = key.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && key.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
    if bare { out.push_str(key) } else { print_text(key, out) }
}

/// Writes `text` in double quotes.
pub(crate) fn print_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

struct Printer(String);

impl Printer {
    fn word(&mut self, text: &str) {
        self.0.push_str(text);
    }

    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, between: &str, mut each: impl FnMut(&mut Self, T)) {
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                self.word(between);
            }
            each(self, item);
        }
    }

    fn command(&mut self, command: &Command<'_>) {
        match command {
            Command::Find(find) => self.find(find),
            Command::Explain(find) => {
                self.word("EXPLAIN ");
                self.find(find);
            }
            Command::Upsert(statements) => self.list(statements, "\n", |out, statement| {
                out.word("UPSERT {");
                for block in &statement.blocks {
                    out.word("\n  ");
                    out.block(block);
                }
                out.word("\n}");
                out.metadata(&statement.metadata);
            }),
            Command::Update(update) => {
                let _ = write!(self.0, "UPDATE ?{}", update.target.0);
                // An UPDATE needs at least one SET, even an empty one.
                if !update.attributes.is_empty() || update.metadata.is_empty() {
                    self.sets(" SET ATTRIBUTES {", &update.attributes);
                }
                if !update.metadata.is_empty() {
                    self.sets(" SET METADATA {", &update.metadata);
                }
                self.where_block(&update.clauses);
                self.placed(" LIMIT ", &update.limit);
            }
            Command::Merge(merge) => {
                let _ = write!(self.0, "MERGE CONCEPT ?{} INTO ?{}", merge.source.0, merge.target.0);
                self.where_block(&merge.clauses);
            }
            Command::Delete(delete) => {
                let var = delete.target.0;
                match &delete.what {
                    Deleted::Attributes(keys) => self.keys("ATTRIBUTES", keys, var),
                    Deleted::Metadata(keys) => self.keys("METADATA", keys, var),
                    Deleted::Propositions => drop(write!(self.0, "DELETE PROPOSITIONS ?{var}")),
                    Deleted::Concepts => drop(write!(self.0, "DELETE CONCEPT ?{var} DETACH")),
                }
                self.where_block(&delete.clauses);
            }
            Command::Export(export) => {
                let _ = write!(self.0, "EXPORT ?{}", export.target.0);
                self.where_block(&export.clauses);
                self.placed(" LIMIT ", &export.limit);
                self.placed(" CURSOR ", &export.cursor);
            }
            Command::Describe(describe) => self.describe(describe),
            Command::Search(search) => {
                self.word(if search.propositions { "SEARCH PROPOSITION " } else { "SEARCH CONCEPT " });
                self.lit(&search.term.0);
                self.placed(" WITH TYPE ", &search.kind);
                self.placed(" MODE ", &search.mode);
                self.placed(" THRESHOLD ", &search.threshold);
                self.placed(" LIMIT ", &search.limit);
            }
        }
    }

    fn keys(&mut self, what: &str, keys: &[super::ast::Text<'_>], var: &str) {
        let _ = write!(self.0, "DELETE {what} {{");
        self.list(keys, ", ", |out, key| print_text(key, &mut out.0));
        let _ = write!(self.0, "}} FROM ?{var}");
    }

    fn describe(&mut self, describe: &Describe<'_>) {
        self.word("DESCRIBE ");
        let page = |out: &mut Self, page: &Page<'_>| {
            out.placed(" LIMIT ", &page.limit);
            out.placed(" CURSOR ", &page.cursor);
        };
        match describe {
            Describe::Primer(budget) => {
                self.word("PRIMER");
                self.placed(" BUDGET ", budget);
            }
            Describe::Domains => self.word("DOMAINS"),
            Describe::ConceptTypes(at) => {
                self.word("CONCEPT TYPES");
                page(self, at);
            }
            Describe::PropositionTypes(at) => {
                self.word("PROPOSITION TYPES");
                page(self, at);
            }
            Describe::Conflicts(at) => {
                self.word("CONFLICTS");
                page(self, at);
            }
            Describe::ConceptType((name, _)) => {
                self.word("CONCEPT TYPE ");
                self.lit(name);
            }
            Describe::PropositionType((name, _)) => {
                self.word("PROPOSITION TYPE ");
                self.lit(name);
            }
        }
    }

    fn find(&mut self, find: &Find<'_>) {
        self.word("FIND(");
        self.list(&find.select, ", ", |out, selected| out.selected(selected));
        self.word(")");
        self.where_block(&find.clauses);
        self.placed(" AS OF SEQ ", &find.as_of);
        if !find.order.is_empty() {
            self.word(" ORDER BY ");
            self.list(&find.order, ", ", |out, (key, descending)| {
                out.selected(key);
                out.word(if *descending { " DESC" } else { " ASC" });
            });
        }
        self.placed(" LIMIT ", &find.limit);
        self.placed(" CURSOR ", &find.cursor);
    }

    fn placed(&mut self, word: &str, value: &Option<Placed<'_>>) {
        if let Some((lit, _)) = value {
            self.word(word);
            self.lit(lit);
        }
    }

    fn selected(&mut self, selected: &Selected<'_>) {
        match selected {
            Selected::Path(path) => self.path(path),
            Selected::Aggregate { function, distinct, path } => {
                self.word(function.name());
                self.word("(");
                if *distinct {
                    self.word("DISTINCT ");
                }
                self.path(path);
                self.word(")");
            }
        }
    }

    fn path(&mut self, path: &Path<'_>) {
        let _ = write!(self.0, "?{}", path.var);
        for field in &path.fields {
            self.word(".");
            print_key(field, &mut self.0);
        }
    }

    fn where_block(&mut self, clauses: &[Clause<'_>]) {
        self.word(" WHERE ");
        self.clauses(clauses);
    }

    fn clauses(&mut self, clauses: &[Clause<'_>]) {
        self.word("{ ");
        for clause in clauses {
            self.clause(clause);
            self.word(" ");
        }
        self.word("}");
    }

    fn clause(&mut self, clause: &Clause<'_>) {
        match clause {
            Clause::Concept(var, pattern) => {
                let _ = write!(self.0, "?{var} ");
                self.concept(pattern);
            }
            Clause::Proposition(var, pattern) => {
                if let Some(var) = var {
                    let _ = write!(self.0, "?{var} ");
                }
                self.proposition(pattern);
            }
            Clause::Filter(test) => {
                self.word("FILTER(");
                self.expr(test, 0);
                self.word(")");
            }
            Clause::Not(inner) => {
                self.word("NOT ");
                self.clauses(inner);
            }
            Clause::Optional(inner) => {
                self.word("OPTIONAL ");
                self.clauses(inner);
            }
            Clause::Union(inner) => {
                self.word("UNION ");
                self.clauses(inner);
            }
        }
    }

    fn concept(&mut self, pattern: &ConceptPattern<'_>) {
        let members = [("id", &pattern.id), ("type", &pattern.kind), ("name", &pattern.name)];
        self.word("{");
        self.list(members.into_iter().filter_map(|(key, lit)| Some((key, lit.as_ref()?))), ", ", |out, (key, lit)| {
            let _ = write!(out.0, "{key}: ");
            out.lit(lit);
        });
        self.word("}");
    }

    fn proposition(&mut self, pattern: &PropositionPattern<'_>) {
        match pattern {
            PropositionPattern::Id(id, _) => {
                self.word("(id: ");
                self.lit(id);
                self.word(")");
            }
            PropositionPattern::Triple(triple) => {
                self.word("(");
                self.term(&triple.subject);
                self.word(", ");
                match &triple.predicate {
                    Predicate::Var(name, _) => drop(write!(self.0, "?{name}")),
                    Predicate::Names(names) => self.list(names, " | ", |out, (name, hops)| {
                        out.lit(name);
                        out.hops(*hops);
                    }),
                }
                self.word(", ");
                self.term(&triple.object);
                self.word(")");
            }
        }
    }

    fn hops(&mut self, hops: Option<Hops>) {
        match hops {
            None => {}
            Some(Hops { min, max: Some(max) }) if min == max => drop(write!(self.0, "{{{min}}}")),
            Some(Hops { min, max: Some(max) }) => drop(write!(self.0, "{{{min},{max}}}")),
            Some(Hops { min, max: None }) => drop(write!(self.0, "{{{min},}}")),
        }
    }

    fn term(&mut self, term: &Term<'_>) {
        let name = match term {
            Term::Var(name, _) => Some(*name),
            Term::Concept(name, _) | Term::Proposition(name, _) => *name,
        };
        if let Some(name) = name {
            let _ = write!(self.0, "?{name}");
        }
        match term {
            Term::Var(..) => {}
            Term::Concept(name, pattern) => {
                self.word(if name.is_some() { " " } else { "" });
                self.concept(pattern);
            }
            Term::Proposition(name, pattern) => {
                self.word(if name.is_some() { " " } else { "" });
                self.proposition(pattern);
            }
        }
    }

    /// Writes an expression. `strength` is the precedence of the surrounding operator: 0 none, 1 `||`, 2 `&&`, 3 a
    /// comparison or `!`.
    fn expr(&mut self, test: &Expr<'_>, strength: u8) {
        let own = match test {
            Expr::Or(..) => 1,
            Expr::And(..) => 2,
            Expr::Compare(..) => 3,
            _ => 4,
        };
        // Operators of one kind are left-associative, and comparisons cannot be chained.
        let wrapped = own < strength || (own == 3 && strength == 3);
        if wrapped {
            self.word("(");
        }
        match test {
            Expr::Value(lit) => self.lit(lit),
            Expr::Path(path) => self.path(path),
            Expr::Not(inner) => {
                self.word("!");
                self.expr(inner, 4);
            }
            Expr::Or(a, b) => self.binary(a, " || ", b, 1),
            Expr::And(a, b) => self.binary(a, " && ", b, 2),
            Expr::Compare(a, operator, b) => {
                let operator = match operator {
                    Comparison::Eq => " == ",
                    Comparison::Ne => " != ",
                    Comparison::Lt => " < ",
                    Comparison::Le => " <= ",
                    Comparison::Gt => " > ",
                    Comparison::Ge => " >= ",
                };
                self.expr(a, 4);
                self.word(operator);
                self.expr(b, 4);
            }
            Expr::Text(kind, a, b, _) => {
                self.word(kind.name());
                self.word("(");
                self.expr(a, 0);
                self.word(", ");
                self.expr(b, 0);
                self.word(")");
            }
            Expr::In(inner, list, _) => {
                self.word("IN(");
                self.expr(inner, 0);
                self.word(", ");
                self.lit(list);
                self.word(")");
            }
            Expr::IsNull(inner, is) => {
                self.word(if *is { "IS_NULL(" } else { "IS_NOT_NULL(" });
                self.expr(inner, 0);
                self.word(")");
            }
        }
        if wrapped {
            self.word(")");
        }
    }

    fn binary(&mut self, a: &Expr<'_>, operator: &str, b: &Expr<'_>, strength: u8) {
        self.expr(a, strength);
        self.word(operator);
        self.expr(b, strength + 1);
    }

    fn lit(&mut self, lit: &Lit<'_>) {
        match lit {
            Lit::Null => self.word("null"),
            Lit::Bool(truth) => drop(write!(self.0, "{truth}")),
            Lit::Int(int) => drop(write!(self.0, "{int}")),
            Lit::Num(number) => drop(write!(self.0, "{number}")),
            Lit::Str(text) => print_text(text, &mut self.0),
            Lit::Array(items) => {
                self.word("[");
                self.list(items, ", ", |out, item| out.lit(item));
                self.word("]");
            }
            Lit::Object(members) => self.object(members),
            Lit::Param(name, _) => drop(write!(self.0, "${name}")),
        }
    }

    fn object(&mut self, members: &Object<'_>) {
        self.word("{");
        self.list(members, ", ", |out, (key, value)| {
            print_key(key, &mut out.0);
            out.word(": ");
            out.lit(value);
        });
        self.word("}");
    }

    fn metadata(&mut self, metadata: &Object<'_>) {
        if !metadata.is_empty() {
            self.word(" WITH METADATA ");
            self.object(metadata);
        }
    }

    fn block(&mut self, block: &Block<'_>) {
        self.word(if matches!(block.identity, Identity::Concept(_)) { "CONCEPT " } else { "PROPOSITION " });
        if let Some((handle, _)) = block.handle {
            let _ = write!(self.0, "?{handle} ");
        }
        self.word("{ ");
        match &block.identity {
            Identity::Concept(pattern) => self.concept(pattern),
            Identity::Proposition(pattern) => self.proposition(pattern),
        }
        self.placed(" EXPECT VERSION ", &block.expect);
        if !block.attributes.is_empty() {
            self.word(" SET ATTRIBUTES ");
            self.object(&block.attributes);
        }
        if !block.links.is_empty() {
            self.word(" SET PROPOSITIONS {");
            for link in &block.links {
                self.word(" (");
                self.lit(&link.predicate);
                self.word(", ");
                self.term(&link.object);
                self.word(")");
                self.metadata(&link.metadata);
            }
            self.word(" }");
        }
        self.word(" }");
        self.metadata(&block.metadata);
    }

    fn sets(&mut self, word: &str, sets: &[(super::ast::Text<'_>, Compute<'_>)]) {
        self.word(word);
        self.list(sets, ", ", |out, (key, value)| {
            print_key(key, &mut out.0);
            out.word(": ");
            out.compute(value);
        });
        self.word("}");
    }

    fn compute(&mut self, value: &Compute<'_>) {
        match value {
            Compute::Value(lit) => self.lit(lit),
            Compute::Path(path) => self.path(path),
            Compute::Call(function, operands) => {
                self.word(function.name());
                self.word("(");
                self.list(operands, ", ", |out, operand| out.compute(operand));
                self.word(")");
            }
        }
    }
}
