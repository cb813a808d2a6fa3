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

const MARKED = /<(notes|knowledge|summary|map|acts|messages|statements|question)>[\s\S]*?<\/\1>/g;
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
    // Marks in the words of people are replaced by the daemon; only its own system messages and batches have them.
    for (const found of text.matchAll(MARKED)) {
      add(rest, text.slice(at, found.index));
      add(found[1] as PartName, found[0]);
      at = found.index + found[0].length;
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
