// Text of people and of models as elements: a syntax tree, never HTML. Raw HTML is shown as text, and no image is loaded.
import type { Nodes, Parent, RootContent } from "mdast";
import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmFromMarkdown } from "mdast-util-gfm";
import { gfm } from "micromark-extension-gfm";
import { memo, type ReactNode } from "react";
import css from "./Markdown.module.css";

const DEPTH_MAX = 40;
const ROWS_MAX = 500;
/** The bounds beyond which a text is shown as it is: parsing would take longer than a reader waits. */
const CHARS_MAX = 16_000;
const MARKS_MAX = 1_500;
const NESTED_MAX = 24;
/** The signs at the beginning of a line that nest blocks: quotes, and items of lists. */
const NESTS = /^(?:\s*(?:>|[*+-](?=\s)|\d{1,9}[.)](?=\s)))*/;

/** Shows characters that hide or reorder text. */
export function visible(text: string): string {
  const hidden =
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that are made visible
    /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
  return text.replace(hidden, (c) => `\u27e8${c.codePointAt(0)?.toString(16).padStart(4, "0")}\u27e9`);
}

/** Returns the address of a link, if it leads to a page or a mailbox. */
export function safeUrl(url: string): URL | null {
  try {
    const parsed = new URL(url);
    return ["http:", "https:", "mailto:"].includes(parsed.protocol) ? parsed : null;
  } catch {
    return null;
  }
}

export function parse(text: string): RootContent[] | null {
  const nested = (line: string) => line.match(NESTS)?.[0].match(/>|[*+-]|\d+[.)]/g)?.length ?? 0;
  const marks = text.match(/[*_~[\]`]/g)?.length ?? 0;
  if (text.length > CHARS_MAX || marks > MARKS_MAX || text.split("\n").some((line) => nested(line) > NESTED_MAX))
    return null;
  try {
    return fromMarkdown(text, { extensions: [gfm()], mdastExtensions: [gfmFromMarkdown()] }).children;
  } catch {
    return null;
  }
}

function children(node: Parent, depth: number): ReactNode[] {
  return node.children.map((child, at) => shown(child as Nodes, depth + 1, at));
}

function shown(node: Nodes, depth: number, key: number): ReactNode {
  if (depth > DEPTH_MAX) return "…";
  switch (node.type) {
    case "text":
      return visible(node.value);
    case "html":
      return visible(node.value);
    case "paragraph":
      return <p key={key}>{children(node, depth)}</p>;
    case "strong":
      return <strong key={key}>{children(node, depth)}</strong>;
    case "emphasis":
      return <em key={key}>{children(node, depth)}</em>;
    case "delete":
      return <del key={key}>{children(node, depth)}</del>;
    case "inlineCode":
      return <code key={key}>{visible(node.value)}</code>;
    case "code":
      return (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a block that scrolls is reached by the keyboard
        <pre key={key} tabIndex={0}>
          <code>{visible(node.value)}</code>
        </pre>
      );
    case "break":
      return <br key={key} />;
    case "thematicBreak":
      return <hr key={key} />;
    case "blockquote":
      return <blockquote key={key}>{children(node, depth)}</blockquote>;
    case "heading":
      return (
        <p key={key} className={css.heading}>
          {children(node, depth)}
        </p>
      );
    case "list":
      return node.ordered ? (
        <ol key={key} start={node.start ?? 1}>
          {children(node, depth)}
        </ol>
      ) : (
        <ul key={key}>{children(node, depth)}</ul>
      );
    case "listItem":
      return (
        <li key={key}>
          {typeof node.checked === "boolean" ? (node.checked ? "☑ " : "☐ ") : null}
          {children(node, depth)}
        </li>
      );
    case "table":
      return (
        <div key={key} className={css.table}>
          <table>
            <tbody>
              {node.children.slice(0, ROWS_MAX).map((row, at) => (
                // biome-ignore lint/suspicious/noArrayIndexKey: the rows of a text have no other key
                <tr key={at}>
                  {row.children.map((cell, column) =>
                    at === 0 ? (
                      // biome-ignore lint/suspicious/noArrayIndexKey: as above
                      <th key={column} scope="col">
                        {children(cell, depth)}
                      </th>
                    ) : (
                      // biome-ignore lint/suspicious/noArrayIndexKey: as above
                      <td key={column}>{children(cell, depth)}</td>
                    ),
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    case "link": {
      const url = safeUrl(node.url);
      if (!url) return <span key={key}>{children(node, depth)}</span>;
      const text = node.children.length === 1 && node.children[0]?.type === "text" ? node.children[0].value : null;
      // The host is said, unless the text is the address.
      const host = text === node.url || url.protocol === "mailto:" ? null : ` (${url.host})`;
      return (
        <a key={key} href={url.href} target="_blank" rel="noopener noreferrer nofollow">
          {children(node, depth)}
          {host ? <span className={css.host}>{host}</span> : null}
        </a>
      );
    }
    case "image":
      return (
        <span key={key} className={css.host}>
          [{node.alt || node.url}]
        </span>
      );
    default:
      if ("children" in node) return <span key={key}>{children(node as Parent, depth)}</span>;
      return "value" in node ? visible(String((node as { value: unknown }).value)) : null;
  }
}

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  const nodes = parse(text);
  if (!nodes) return <p className={css.plain}>{visible(text)}</p>;
  return <div className={css.text}>{nodes.map((node, at) => shown(node, 0, at))}</div>;
});
