import { visible } from "../markdown/Markdown";
import css from "./Json.module.css";

const CHARS_MAX = 50_000;

/** A JSON value as text. */
export function Json({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "null");
  const cut = text.length > CHARS_MAX ? `${text.slice(0, CHARS_MAX)}\n…` : text;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a block that scrolls is reached by the keyboard
    <section className={css.json} tabIndex={0} aria-label={label}>
      <pre>{visible(cut)}</pre>
    </section>
  );
}
