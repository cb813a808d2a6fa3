//! Recursive descent, one function a grammar rule, the rule above it.

use std::sync::Arc;

use serde_json::Value;

use super::ast::{
    Block, Clause, Command, Comparison, ConceptPattern, Delete, Deleted, Describe, Expr, Find, Link, Object, Path,
    Predicate, PropositionPattern, Search, Selected, Term, TextTest, Triple, Upsert, Val,
};
use super::error::{KipError, Span, syntax};
use super::lexer::{T, Token, tokens};
use super::{COMMAND_BYTES_MAX, NESTING_MAX};

/// Reads one command.
///
/// # Errors
/// A `syntax` error at the first token that cannot stand where it stands.
pub fn parse(text: &str) -> Result<Command, KipError> {
    if text.len() > COMMAND_BYTES_MAX {
        return Err(syntax(
            format!("a command of {} bytes is over the bound of {COMMAND_BYTES_MAX}", text.len()),
            Span::default(),
        ));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let command = command(&mut parser)?;
    parser.take_mark(";");
    match parser.peek() {
        T::End => Ok(command),
        _ => Err(parser.unexpected("the end of the command")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

type Parsed<R> = Result<R, KipError>;

impl Parser {
    fn peek(&self) -> &T {
        &self.tokens[self.at].t
    }

    fn span(&self) -> Span {
        self.tokens[self.at].span
    }

    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is_mark(&self, mark: &str) -> bool {
        matches!(self.peek(), T::Mark(found) if *found == mark)
    }

    fn take_mark(&mut self, mark: &str) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.next();
        }
        found
    }

    fn mark(&mut self, mark: &'static str) -> Parsed<Span> {
        if self.is_mark(mark) { Ok(self.next().span) } else { Err(self.unexpected(&format!("'{mark}'"))) }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), T::Ident(found) if found.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.next();
        }
        found
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        if self.take_word(word) { Ok(()) } else { Err(self.unexpected(word)) }
    }

    fn var(&mut self) -> Parsed<(Arc<str>, Span)> {
        match self.peek().clone() {
            T::Var(name) => Ok((name, self.next().span)),
            _ => Err(self.unexpected("a variable such as ?x")),
        }
    }

    fn unexpected(&self, wanted: &str) -> KipError {
        let found = match self.peek() {
            T::Ident(name) => name.to_string(),
            T::Var(name) => format!("?{name}"),
            T::Param(name) => format!("${name}"),
            T::Str(text) => format!("\"{text}\""),
            T::Num(number) => number.to_string(),
            T::Mark(mark) => format!("'{mark}'"),
            T::End => "the end of the command".into(),
        };
        syntax(format!("expected {wanted}, found {found}"), self.span())
    }

    /// Runs `rule` one level deeper.
    fn deeper<R>(&mut self, rule: impl FnOnce(&mut Self) -> Parsed<R>) -> Parsed<R> {
        if self.depth == NESTING_MAX {
            return Err(syntax(format!("nested more than {NESTING_MAX} deep"), self.span()));
        }
        self.depth += 1;
        let parsed = rule(self);
        self.depth -= 1;
        parsed
    }
}

// command ::= find | upsert+ | delete | describe | search
fn command(p: &mut Parser) -> Parsed<Command> {
    if p.take_word("FIND") {
        return find(p).map(Command::Find);
    }
    if p.is_word("UPSERT") {
        let mut statements = Vec::new();
        while p.take_word("UPSERT") {
            statements.push(upsert(p)?);
            p.take_mark(";");
        }
        return Ok(Command::Upsert(statements));
    }
    if p.take_word("DELETE") {
        return delete(p).map(Command::Delete);
    }
    if p.take_word("DESCRIBE") {
        return describe(p).map(Command::Describe);
    }
    if p.take_word("SEARCH") {
        return search(p).map(Command::Search);
    }
    Err(p
        .unexpected("FIND, UPSERT, DELETE, DESCRIBE or SEARCH")
        .hint("a command begins with one of these words, as in FIND(?x.name) WHERE { ?x {type: \"Person\"} }"))
}

// find ::= 'FIND' '(' selected (',' selected)* ')' where ('ORDER' 'BY' key (',' key)*)? ('LIMIT' value)?
fn find(p: &mut Parser) -> Parsed<Find> {
    p.mark("(")?;
    let mut select = vec![selected(p)?];
    while p.take_mark(",") && !p.is_mark(")") {
        select.push(selected(p)?);
    }
    p.mark(")")?;
    let clauses = where_block(p)?;
    let mut order = Vec::new();
    if p.take_word("ORDER") {
        p.word("BY")?;
        loop {
            let key = path(p)?;
            let descending = p.take_word("DESC");
            if !descending {
                p.take_word("ASC");
            }
            order.push((key, descending));
            if !p.take_mark(",") {
                break;
            }
        }
    }
    let limit = limit(p)?;
    if p.is_word("CURSOR") {
        return Err(not_yet(p, "CURSOR"));
    }
    Ok(Find { select, clauses, order, limit })
}

fn not_yet(p: &Parser, what: &str) -> KipError {
    syntax(format!("{what} is not part of this release"), p.span())
        .hint("this release reads concept and proposition clauses, FILTER, ORDER BY and LIMIT")
}

// limit ::= 'LIMIT' value
fn limit(p: &mut Parser) -> Parsed<Option<(Val, Span)>> {
    if !p.take_word("LIMIT") {
        return Ok(None);
    }
    let span = p.span();
    Ok(Some((value(p)?, span)))
}

// selected ::= 'COUNT' '(' 'DISTINCT'? path ')' | path
fn selected(p: &mut Parser) -> Parsed<Selected> {
    if p.take_word("COUNT") {
        p.mark("(")?;
        let distinct = p.take_word("DISTINCT");
        let path = path(p)?;
        p.mark(")")?;
        return Ok(Selected::Count { distinct, path });
    }
    if let T::Ident(name) = p.peek() {
        let name = name.to_uppercase();
        if ["SUM", "AVG", "MIN", "MAX"].contains(&name.as_str()) {
            return Err(not_yet(p, &name));
        }
    }
    path(p).map(Selected::Path)
}

// path ::= VAR ('.' key)*
fn path(p: &mut Parser) -> Parsed<Path> {
    let (var, start) = p.var()?;
    let mut fields = Vec::new();
    while p.take_mark(".") {
        fields.push(key(p)?);
    }
    Ok(Path { var, fields, span: start.to(p.last_span()) })
}

// key ::= IDENT | STRING
fn key(p: &mut Parser) -> Parsed<Arc<str>> {
    match p.peek().clone() {
        T::Ident(name) | T::Str(name) => {
            p.next();
            Ok(name)
        }
        _ => Err(p.unexpected("a key")),
    }
}

// where ::= 'WHERE' '{' clause* '}'
fn where_block(p: &mut Parser) -> Parsed<Vec<Clause>> {
    p.word("WHERE")?;
    p.mark("{")?;
    let mut clauses = Vec::new();
    while !p.take_mark("}") {
        clauses.push(clause(p)?);
        p.take_mark(",");
    }
    Ok(clauses)
}

// clause ::= VAR? (concept | proposition) | 'FILTER' '(' expr ')'
fn clause(p: &mut Parser) -> Parsed<Clause> {
    if p.take_word("FILTER") {
        p.mark("(")?;
        let test = expr(p)?;
        p.mark(")")?;
        return Ok(Clause::Filter(test));
    }
    for word in ["NOT", "OPTIONAL", "UNION"] {
        if p.is_word(word) {
            return Err(not_yet(p, word));
        }
    }
    if p.is_mark("(") {
        return Ok(Clause::Proposition(None, proposition(p)?));
    }
    let (var, _) =
        p.var().map_err(|error| error.hint("a clause is ?x {type: \"…\"}, (?s, \"predicate\", ?o) or FILTER(…)"))?;
    if p.is_mark("{") {
        Ok(Clause::Concept(var, concept(p)?))
    } else {
        Ok(Clause::Proposition(Some(var), proposition(p)?))
    }
}

// concept ::= '{' ('id'|'type'|'name') ':' value (',' …)* '}'
fn concept(p: &mut Parser) -> Parsed<ConceptPattern> {
    let open = p.mark("{")?;
    let mut pattern = ConceptPattern { id: None, kind: None, name: None, span: open };
    while !p.is_mark("}") {
        let at = p.span();
        let place = match &*key(p)? {
            "id" => &mut pattern.id,
            "type" => &mut pattern.kind,
            "name" => &mut pattern.name,
            other => {
                return Err(syntax(format!("a concept is matched by id, type and name, not by {other}"), at)
                    .hint(format!("write FILTER(?x.attributes.{other} == …) instead")));
            }
        };
        p.mark(":")?;
        *place = Some(value(p)?);
        if !p.take_mark(",") {
            break;
        }
    }
    pattern.span = open.to(p.mark("}")?);
    if pattern.id.is_none() && pattern.kind.is_none() && pattern.name.is_none() {
        return Err(syntax("an empty concept pattern matches everything", pattern.span)
            .hint("name at least one of id, type, name"));
    }
    Ok(pattern)
}

// proposition ::= '(' 'id' ':' value ')' | '(' term ',' predicate ',' term ')'
fn proposition(p: &mut Parser) -> Parsed<PropositionPattern> {
    p.deeper(|p| {
        let open = p.mark("(")?;
        if p.is_word("id") {
            p.next();
            p.mark(":")?;
            let id = value(p)?;
            return Ok(PropositionPattern::Id(id, open.to(p.mark(")")?)));
        }
        let subject = term(p)?;
        p.mark(",")?;
        let predicate = predicate(p)?;
        p.mark(",")?;
        let object = term(p)?;
        p.take_mark(",");
        let span = open.to(p.mark(")")?);
        Ok(PropositionPattern::Triple(Box::new(Triple { subject, predicate, object, span })))
    })
}

// predicate ::= VAR | value ('|' value)*
fn predicate(p: &mut Parser) -> Parsed<Predicate> {
    if let T::Var(name) = p.peek().clone() {
        p.next();
        return Ok(Predicate::Var(name));
    }
    let mut names = Vec::new();
    loop {
        if matches!(p.peek(), T::Str(text) if text.contains('{')) {
            return Err(not_yet(p, "a path"));
        }
        names.push(value(p)?);
        if p.is_mark("{") {
            return Err(not_yet(p, "a path"));
        }
        if !p.take_mark("|") {
            return Ok(Predicate::Names(names));
        }
    }
}

// term ::= VAR concept? | concept | proposition
fn term(p: &mut Parser) -> Parsed<Term> {
    match p.peek().clone() {
        T::Var(name) => {
            let span = p.next().span;
            if p.is_mark("{") { Ok(Term::Concept(Some(name), concept(p)?)) } else { Ok(Term::Var(name, span)) }
        }
        T::Mark("{") => Ok(Term::Concept(None, concept(p)?)),
        T::Mark("(") => proposition(p).map(Term::Proposition),
        _ => Err(p.unexpected("a variable, {a concept} or (a proposition)")),
    }
}

// expr ::= conjunction ('||' conjunction)*
fn expr(p: &mut Parser) -> Parsed<Expr> {
    p.deeper(|p| {
        let mut left = conjunction(p)?;
        while p.take_mark("||") {
            left = Expr::Or(Box::new(left), Box::new(conjunction(p)?));
        }
        Ok(left)
    })
}

// conjunction ::= comparison ('&&' comparison)*
fn conjunction(p: &mut Parser) -> Parsed<Expr> {
    let mut left = comparison(p)?;
    while p.take_mark("&&") {
        left = Expr::And(Box::new(left), Box::new(comparison(p)?));
    }
    Ok(left)
}

// comparison ::= unary (('=='|'!='|'<'|'<='|'>'|'>=') unary)?
fn comparison(p: &mut Parser) -> Parsed<Expr> {
    let left = unary(p)?;
    let operator = match p.peek() {
        T::Mark("==") => Comparison::Eq,
        T::Mark("!=") => Comparison::Ne,
        T::Mark("<") => Comparison::Lt,
        T::Mark("<=") => Comparison::Le,
        T::Mark(">") => Comparison::Gt,
        T::Mark(">=") => Comparison::Ge,
        _ => return Ok(left),
    };
    p.next();
    Ok(Expr::Compare(Box::new(left), operator, Box::new(unary(p)?)))
}

// unary ::= '!' unary | '(' expr ')' | text_test | path | value
fn unary(p: &mut Parser) -> Parsed<Expr> {
    if p.take_mark("!") {
        return p.deeper(unary).map(|inner| Expr::Not(Box::new(inner)));
    }
    if p.take_mark("(") {
        let inner = expr(p)?;
        p.mark(")")?;
        return Ok(inner);
    }
    if matches!(p.peek(), T::Var(_)) {
        return path(p).map(Expr::Path);
    }
    let test = match p.peek() {
        T::Ident(name) => match name.to_uppercase().as_str() {
            "CONTAINS" => Some(TextTest::Contains),
            "STARTS_WITH" => Some(TextTest::StartsWith),
            "ENDS_WITH" => Some(TextTest::EndsWith),
            "REGEX" => Some(TextTest::Regex),
            _ => None,
        },
        _ => None,
    };
    let Some(test) = test else { return value(p).map(Expr::Value) };
    let start = p.next().span;
    p.mark("(")?;
    let text = expr(p)?;
    p.mark(",")?;
    let part = expr(p)?;
    let span = start.to(p.mark(")")?);
    Ok(Expr::Text(test, Box::new(text), Box::new(part), span))
}

// value ::= STRING | NUMBER | 'true' | 'false' | 'null' | '$' IDENT | ':' IDENT | object | array
fn value(p: &mut Parser) -> Parsed<Val> {
    match p.peek().clone() {
        T::Str(text) => {
            p.next();
            Ok(Val::Json(Value::String(text.to_string())))
        }
        T::Num(number) => {
            p.next();
            Ok(Val::Json(Value::Number(number)))
        }
        T::Param(name) => Ok(Val::Param(name, p.next().span)),
        T::Mark(":") => {
            let start = p.next().span;
            match p.peek().clone() {
                T::Ident(name) => Ok(Val::Param(name, start.to(p.next().span))),
                _ => Err(p.unexpected("the name of a placeholder")),
            }
        }
        T::Mark("{") => p.deeper(object).map(Val::Object),
        T::Mark("[") => p.deeper(array).map(Val::Array),
        T::Ident(word) => {
            let json = match word.to_ascii_lowercase().as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "null" => Value::Null,
                _ => return Err(p.unexpected("a value").hint(format!("a text is written \"{word}\""))),
            };
            p.next();
            Ok(Val::Json(json))
        }
        _ => Err(p.unexpected("a value")),
    }
}

// object ::= '{' (key ':' value (',' key ':' value)* ','?)? '}'
fn object(p: &mut Parser) -> Parsed<Object> {
    p.mark("{")?;
    let mut members: Object = Vec::new();
    while !p.is_mark("}") {
        let name = key(p)?;
        p.mark(":")?;
        members.push((name, value(p)?));
        if !p.take_mark(",") {
            break;
        }
    }
    p.mark("}")?;
    Ok(members)
}

// array ::= '[' (value (',' value)* ','?)? ']'
fn array(p: &mut Parser) -> Parsed<Vec<Val>> {
    p.mark("[")?;
    let mut items = Vec::new();
    while !p.is_mark("]") {
        items.push(value(p)?);
        if !p.take_mark(",") {
            break;
        }
    }
    p.mark("]")?;
    Ok(items)
}

// upsert ::= 'UPSERT' '{' block* '}' metadata?
fn upsert(p: &mut Parser) -> Parsed<Upsert> {
    p.mark("{")?;
    let mut blocks = Vec::new();
    while !p.take_mark("}") {
        blocks.push(block(p)?);
    }
    Ok(Upsert { blocks, metadata: metadata(p)? })
}

// metadata ::= ('WITH' 'METADATA' object)?
fn metadata(p: &mut Parser) -> Parsed<Object> {
    if !p.take_word("WITH") {
        return Ok(Vec::new());
    }
    p.word("METADATA")?;
    object(p)
}

// block ::= 'CONCEPT' VAR? '{' concept set* '}' metadata? | 'PROPOSITION' VAR? '{' proposition set* '}' metadata?
fn block(p: &mut Parser) -> Parsed<Block> {
    let is_concept = p.take_word("CONCEPT");
    if !is_concept && !p.take_word("PROPOSITION") {
        return Err(p.unexpected("CONCEPT or PROPOSITION"));
    }
    let handle = if matches!(p.peek(), T::Var(_)) { Some(p.var()?) } else { None };
    p.mark("{")?;
    if is_concept {
        let pattern = concept(p)?;
        let (mut attributes, mut links) = (Vec::new(), Vec::new());
        while p.take_word("SET") {
            if p.take_word("ATTRIBUTES") {
                attributes.extend(object(p)?);
            } else {
                p.word("PROPOSITIONS")?;
                links.extend(set_propositions(p)?);
            }
        }
        p.mark("}")?;
        return Ok(Block::Concept { handle, pattern, attributes, links, metadata: metadata(p)? });
    }
    let pattern = proposition(p)?;
    let mut attributes = Vec::new();
    while p.take_word("SET") {
        p.word("ATTRIBUTES")?;
        attributes.extend(object(p)?);
    }
    p.mark("}")?;
    Ok(Block::Proposition { handle, pattern, attributes, metadata: metadata(p)? })
}

// set_propositions ::= '{' ('(' value ',' term ')' metadata? ','?)* '}'
fn set_propositions(p: &mut Parser) -> Parsed<Vec<Link>> {
    p.mark("{")?;
    let mut links = Vec::new();
    while !p.take_mark("}") {
        let open = p.mark("(")?;
        let predicate = value(p)?;
        p.mark(",")?;
        let object = term(p)?;
        let span = open.to(p.mark(")")?);
        links.push(Link { predicate, object, metadata: metadata(p)?, span });
        p.take_mark(",");
    }
    Ok(links)
}

// delete ::= 'DELETE' ('ATTRIBUTES' keys 'FROM' | 'METADATA' keys 'FROM' | 'PROPOSITIONS' | 'CONCEPT') VAR 'DETACH'? where
fn delete(p: &mut Parser) -> Parsed<Delete> {
    let what = if p.take_word("ATTRIBUTES") {
        Deleted::Attributes(keys(p)?)
    } else if p.take_word("METADATA") {
        Deleted::Metadata(keys(p)?)
    } else if p.take_word("PROPOSITIONS") {
        Deleted::Propositions
    } else if p.take_word("CONCEPT") {
        Deleted::Concepts
    } else {
        return Err(p.unexpected("ATTRIBUTES, METADATA, PROPOSITIONS or CONCEPT"));
    };
    if matches!(what, Deleted::Attributes(_) | Deleted::Metadata(_)) {
        p.word("FROM")?;
    }
    let (target, span) = p.var()?;
    if what == Deleted::Concepts && !p.take_word("DETACH") {
        return Err(p.unexpected("DETACH").hint("DELETE CONCEPT ?x DETACH says that its links go with it"));
    }
    Ok(Delete { what, target, span, clauses: where_block(p)? })
}

// keys ::= '{' key (',' key)* ','? '}'
fn keys(p: &mut Parser) -> Parsed<Vec<Arc<str>>> {
    p.mark("{")?;
    let mut keys = Vec::new();
    while !p.is_mark("}") {
        keys.push(key(p)?);
        if !p.take_mark(",") {
            break;
        }
    }
    p.mark("}")?;
    Ok(keys)
}

// describe ::= 'DESCRIBE' ('PRIMER' | 'DOMAINS' | ('CONCEPT'|'PROPOSITION') ('TYPES' limit? | 'TYPE' value))
fn describe(p: &mut Parser) -> Parsed<Describe> {
    if p.take_word("PRIMER") {
        return Ok(Describe::Primer);
    }
    if p.take_word("DOMAINS") {
        return Ok(Describe::Domains);
    }
    let of_concepts = p.take_word("CONCEPT");
    if !of_concepts && !p.take_word("PROPOSITION") {
        return Err(p.unexpected("PRIMER, DOMAINS, CONCEPT or PROPOSITION"));
    }
    if p.take_word("TYPES") {
        let limit = limit(p)?;
        return Ok(if of_concepts { Describe::ConceptTypes(limit) } else { Describe::PropositionTypes(limit) });
    }
    p.word("TYPE")?;
    let name = value(p)?;
    Ok(if of_concepts { Describe::ConceptType(name) } else { Describe::PropositionType(name) })
}

// search ::= 'SEARCH' 'CONCEPT'? value ('WITH' 'TYPE' value)? limit?
fn search(p: &mut Parser) -> Parsed<Search> {
    if p.is_word("PROPOSITION") {
        return Err(not_yet(p, "SEARCH PROPOSITION"));
    }
    p.take_word("CONCEPT");
    let term = value(p)?;
    let kind = if p.take_word("WITH") {
        p.word("TYPE")?;
        Some(value(p)?)
    } else {
        None
    };
    Ok(Search { term, kind, limit: limit(p)? })
}
