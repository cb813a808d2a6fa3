// KIP in the editor: its words in colours, and what can be written at a place. The grammar itself is the engine's, which says where a
// command is wrong.
import { type CompletionContext, type CompletionResult, completeFromList } from "@codemirror/autocomplete";
import { HighlightStyle, LanguageSupport, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { tags } from "@lezer/highlight";

const KEYWORDS = [
  "FIND",
  "WHERE",
  "FILTER",
  "NOT",
  "OPTIONAL",
  "UNION",
  "ORDER BY",
  "ASC",
  "DESC",
  "LIMIT",
  "CURSOR",
  "AS OF SEQ",
  "UPSERT",
  "CONCEPT",
  "PROPOSITION",
  "SET ATTRIBUTES",
  "SET PROPOSITIONS",
  "WITH METADATA",
  "EXPECT VERSION",
  "UPDATE",
  "SET METADATA",
  "DELETE",
  "DETACH",
  "MERGE",
  "DESCRIBE PRIMER",
  "DESCRIBE DOMAINS",
  "DESCRIBE CONCEPT TYPES",
  "DESCRIBE PROPOSITION TYPES",
  "DESCRIBE CONFLICTS",
  "EXPLAIN",
  "SEARCH CONCEPT",
  "SEARCH PROPOSITION",
  "WITH TYPE",
  "MODE",
  "THRESHOLD",
];
const FUNCTIONS = [
  "COUNT",
  "SUM",
  "AVG",
  "MIN",
  "MAX",
  "CONTAINS",
  "STARTS_WITH",
  "ENDS_WITH",
  "REGEX",
  "IN",
  "IS_NULL",
  "IS_NOT_NULL",
];
const WORDS = new Set([...KEYWORDS.flatMap((words) => words.split(" ")), "TYPES", "BY", "OF"]);

const stream = StreamLanguage.define({
  name: "kip",
  languageData: { commentTokens: { line: "//" }, closeBrackets: { brackets: ["(", "[", "{", '"'] } },
  token(at) {
    if (at.eatSpace()) return null;
    if (at.match("//")) {
      at.skipToEnd();
      return "comment";
    }
    if (at.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
    if (at.match(/^[?$][A-Za-z_]\w*/)) return "variableName";
    if (at.match(/^-?\d+(?:\.\d+)?/)) return "number";
    const word = at.match(/^[A-Za-z_]\w*/);
    if (word && typeof word !== "boolean") {
      if (FUNCTIONS.includes(word[0])) return "function";
      if (WORDS.has(word[0])) return "keyword";
      return "propertyName";
    }
    at.next();
    return null;
  },
  tokenTable: { function: tags.function(tags.variableName) },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)" },
  { tag: tags.function(tags.variableName), color: "var(--accent)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: tags.variableName, color: "var(--warn)" },
  { tag: tags.number, color: "var(--warn)" },
  { tag: tags.comment, color: "var(--dim)" },
]);

/** The types and predicates of a mind. */
export interface Schema {
  types: string[];
  predicates: string[];
}

/** Returns the language with completions: words of KIP, and in quotation marks the names of the mind's types and predicates. */
export function kipLanguage(schema: () => Schema): LanguageSupport {
  const words = completeFromList([
    ...KEYWORDS.map((label) => ({ label, type: "keyword" })),
    ...FUNCTIONS.map((label) => ({ label, type: "function", apply: `${label}(` })),
  ]);
  const complete = (context: CompletionContext): CompletionResult | Promise<CompletionResult | null> | null => {
    const quoted = context.matchBefore(/"[\w$]*/);
    if (!quoted) return words(context);
    const { types, predicates } = schema();
    const before = context.state.sliceDoc(Math.max(0, quoted.from - 12), quoted.from);
    const isType = /type:\s*$/i.test(before) || /TYPE\s*$/.test(before);
    const names = isType ? types : [...predicates, ...types];
    return {
      from: quoted.from + 1,
      options: names.map((label) => ({ label, type: types.includes(label) ? "type" : "property", apply: `${label}"` })),
      validFor: /^[\w$]*$/,
    };
  };
  return new LanguageSupport(stream, [stream.data.of({ autocomplete: complete }), syntaxHighlighting(colours)]);
}
