// The editor of KIP commands.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching } from "@codemirror/language";
import { EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, drawSelection, EditorView, keymap } from "@codemirror/view";
import { useEffect, useRef } from "react";
import { kipLanguage, type Schema } from "./language";

/** The place of a fault: line and column, from 1. */
export interface Place {
  line: number;
  column: number;
}

const setFault = StateEffect.define<Place | undefined>();
const faults = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, change) {
    for (const effect of change.effects) {
      if (!effect.is(setFault)) continue;
      const place = effect.value;
      if (!place || place.line > change.state.doc.lines) return Decoration.none;
      const line = change.state.doc.line(place.line);
      const from = Math.min(line.from + place.column - 1, Math.max(line.from, line.to - 1));
      if (from >= line.to) return Decoration.none;
      return Decoration.set([Decoration.mark({ class: "cm-fault" }).range(from, line.to)]);
    }
    return change.docChanged ? Decoration.none : marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const look = EditorView.theme({
  "&": {
    border: "1px solid var(--line)",
    borderRadius: "var(--radius)",
    backgroundColor: "var(--panel)",
    color: "var(--text)",
  },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "2px" },
  ".cm-content": { fontFamily: "var(--mono)", fontSize: "0.9rem", minHeight: "8rem", caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-fault": { textDecoration: "underline wavy var(--bad)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": {
    backgroundColor: "var(--mine)",
  },
  ".cm-tooltip": { backgroundColor: "var(--panel)", border: "1px solid var(--line)", color: "var(--text)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-matchingBracket": { backgroundColor: "var(--mine)" },
});

export function Editor({
  label,
  value,
  change,
  run,
  schema,
  fault,
}: {
  label: string;
  value: string;
  change: (value: string) => void;
  run: () => void;
  schema: Schema;
  fault: Place | undefined;
}) {
  const frame = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const now = useRef({ change, run, schema });
  now.current = { change, run, schema };
  const first = useRef(value);

  useEffect(() => {
    const nonce = document.querySelector<HTMLMetaElement>("meta[property=csp-nonce]")?.nonce;
    const editor = new EditorView({
      parent: frame.current!,
      state: EditorState.create({
        doc: first.current,
        extensions: [
          nonce ? EditorView.cspNonce.of(nonce) : [],
          history(),
          drawSelection(),
          bracketMatching(),
          closeBrackets(),
          autocompletion(),
          keymap.of([
            {
              key: "Mod-Enter",
              run: () => {
                now.current.run();
                return true;
              },
            },
            ...closeBracketsKeymap,
            ...completionKeymap,
            ...historyKeymap,
            ...defaultKeymap,
          ]),
          kipLanguage(() => now.current.schema),
          faults,
          look,
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", autocapitalize: "off" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) now.current.change(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = editor;
    return () => editor.destroy();
  }, [label]);

  useEffect(() => {
    const editor = view.current;
    if (editor && editor.state.doc.toString() !== value) {
      editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: value } });
    }
    first.current = value;
  }, [value]);

  useEffect(() => {
    view.current?.dispatch({ effects: setFault.of(fault) });
  }, [fault]);

  return <div ref={frame} />;
}
