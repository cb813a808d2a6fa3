// Edits on their way to a mind map, and the way back: one's own latest edit is undone, as long as nothing else was changed there.
import { useMutation } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, data } from "../api/client";
import type { State } from "../canvas/state";
import { inverseOf, type Op } from "./edits";

const UNDONE_MAX = 100;

interface Done {
  back: Op[];
  /** The revision of the canvas after the edit: an entity that changed later refuses the way back. */
  rev: number;
}

export function useEdits(lf: string, canvas: string, state: State) {
  const [done, setDone] = useState<Done[]>([]);
  const now = useRef(state);
  now.current = state;
  const write = async (ops: Op[], baseRev?: number) => {
    const answer = await data(
      api.POST("/v1/lifeforms/{id}/canvases/{canvas}/ops", {
        params: { path: { id: lf, canvas }, header: { "Idempotency-Key": crypto.randomUUID() } },
        body: { ops: ops as never, base_rev: baseRev },
      }),
    );
    return (answer as unknown as { rev: number }).rev;
  };
  const edit = useMutation({
    mutationFn: async (ops: Op[]) => {
      const back = ops.toReversed().flatMap((op) => inverseOf(now.current, op));
      const rev = await write(ops);
      if (back.length) setDone((all) => [...all, { back, rev }].slice(-UNDONE_MAX));
    },
  });
  const undo = useMutation({
    mutationFn: async () => {
      const last = done.at(-1);
      if (!last) return;
      // Also one that is refused is not tried again.
      setDone((all) => all.slice(0, -1));
      await write(last.back, last.rev);
    },
  });
  return {
    edit: (...ops: (Op | undefined)[]) => {
      const real = ops.filter((op) => op !== undefined);
      if (real.length) edit.mutate(real);
    },
    undo: () => undo.mutate(),
    canUndo: done.length > 0 && !undo.isPending,
    isWriting: edit.isPending || undo.isPending,
    error: edit.error ?? undo.error,
  };
}
