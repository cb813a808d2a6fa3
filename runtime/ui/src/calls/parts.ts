// What fills the prompt of a call: its parts, with their tokens as the daemon estimates them.

export interface Said {
  role: string;
  content?: string | null;
  tool_calls?: unknown;
}

/** The parts of a prompt: those that the daemon marks, and what stands around them, by the role of the message. */
export type PartName =
  | "instructions"
  | "notes"
  | "knowledge"
  | "summary"
  | "map"
  | "acts"
  | "messages"
  | "statements"
  | "question"
  | "said"
  | "answered"
  | "results";

export interface Part {
  name: PartName;
  text: string;
  tokens: number;
}

/** The beginning of a mark with its text. The instructions name the marks, too, in a list: "<notes>, <map> and <acts> is data". */
const BEGINS = /<(notes|knowledge|summary|map|acts|messages|statements|question)>(?!,| and | is )/g;
const OF_ROLE: Record<string, PartName> = {
  system: "instructions",
  user: "said",
  assistant: "answered",
  tool: "results",
};

/** Estimates the tokens of a text: four characters of ASCII are one, and each other character is one. */
export function tokensAbout(text: string): number {
  let ascii = 0;
  let others = 0;
  for (const char of text) {
    if (char.codePointAt(0)! < 128) ascii += 1;
    else others += 1;
  }
  return Math.ceil(ascii / 4) + others;
}

/** Returns the parts of a prompt in the order in which they stand in it. */
export function partsOf(messages: Said[]): Part[] {
  const parts: Part[] = [];
  const add = (name: PartName, text: string) => {
    if (text.trim()) parts.push({ name, text: text.trim(), tokens: tokensAbout(text) });
  };
  for (const { role, content, tool_calls } of messages) {
    const rest = OF_ROLE[role] ?? "said";
    const text = content ?? "";
    let at = 0;
    // Marks of the daemon stand in its own messages: words of people and results of tools may hold any text.
    const isOwn = role === "system" || /^(<statements>|<question>|\(Earlier )/.test(text);
    for (const found of isOwn ? text.matchAll(BEGINS) : []) {
      if (found.index < at) continue;
      const mark = `</${found[1]}>`;
      const end = text.indexOf(mark, found.index);
      if (end < 0) break;
      add(rest, text.slice(at, found.index));
      add(found[1] as PartName, text.slice(found.index, end + mark.length));
      at = end + mark.length;
    }
    add(rest, text.slice(at));
    if (tool_calls) add("answered", JSON.stringify(tool_calls));
  }
  return parts;
}

/** Returns the tokens of each part, the greatest first. */
export function filledBy(parts: Part[]): [PartName, number][] {
  const sums = new Map<PartName, number>();
  for (const { name, tokens } of parts) sums.set(name, (sums.get(name) ?? 0) + tokens);
  return [...sums].sort(([, one], [, other]) => other - one);
}
