// Copies the link, the id, the JSON or the curl command of what is shown.
import { Check, Copy as CopyIcon } from "lucide-react";
import { useState } from "react";
import { curl } from "../api/client";
import { useText } from "../i18n";
import css from "./Copy.module.css";

interface Shown {
  id?: string;
  json?: unknown;
  /** The path of the API under which it is read. */
  path?: string;
}

export function CopyMenu({ id, json, path }: Shown) {
  const text = useText();
  const [done, setDone] = useState(false);
  const copy = async (what: string) => {
    try {
      await navigator.clipboard.writeText(what);
    } catch {
      // Without the right to the clipboard, as over plain HTTP, the text is shown for selection.
      prompt(text.copy.done, what);
      return;
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  const choices: [string, string][] = [[text.copy.link, location.href]];
  if (id) choices.push([text.copy.id, id]);
  if (json !== undefined) choices.push([text.copy.json, JSON.stringify(json, null, 2)]);
  if (path) choices.push([text.copy.curl, curl("GET", path)]);
  return (
    <details className={css.menu}>
      <summary aria-label={text.copy.link}>{done ? <Check size={16} /> : <CopyIcon size={16} />}</summary>
      <ul>
        {choices.map(([name, what]) => (
          <li key={name}>
            <button type="button" onClick={() => copy(what)}>
              {name}
            </button>
          </li>
        ))}
      </ul>
      <span className="visually-hidden" role="status">
        {done ? text.copy.done : ""}
      </span>
    </details>
  );
}
