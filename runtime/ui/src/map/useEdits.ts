// Edits on their way to a mind map, and the way back: one's own latest edit is undone, as long as nobody else changed the same since.
import { useMutation } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, data, Problem } from "../api/client";
import type { State } from "../canvas/state";
import { inverseOf, type Op } from "./edits";

const UNDONE_MAX = 100;

interface Done {
  back: Op[];
  /** The first and the last revision of the edit: an entity that changed later refuses the way back. */
  first: number;
  rev: number;
}

interface Written {
  ops: Op[];
  /** The revision that was seen when the edit began; an entity that changed later refuses it. */
  base?: number;
}

export function useEdits(lf: string, canvas: string, state: State) {
  const [done, setDone] = useState<Done[]>([]);
  const now = useRef(state);
  now.current = state;
  const write = async ({ ops, base }: Written) => {
    const answer = await data(
      api.POST("/v1/lifeforms/{id}/canvases/{canvas}/ops", {
        params: { path: { id: lf, canvas }, header: { "Idempotency-Key": crypto.randomUUID() } },
        body: { ops: ops as never, base_rev: base },
      }),
    );
    return (answer as unknown as { rev: number }).rev;
  };
  const edit = useMutation({
    mutationFn: async (written: Written) => {
      const back = written.ops.toReversed().flatMap((op) => inverseOf(now.current, op));
      const rev = await write(written);
      const first = rev - written.ops.length + 1;
      if (back.length) setDone((all) => [...all, { back, first, rev }].slice(-UNDONE_MAX));
    },
  });
  const undo = useMutation({
    mutationFn: async () => {
      const last = done.at(-1);
      if (!last) return;
      const rev = await write({ ops: last.back, base: last.rev }).catch((error) => {
        // What another changed is not taken back, and not tried again.
        if (error instanceof Problem) setDone((all) => all.slice(0, -1));
        throw error;
      });
      setDone((all) => {
        const rest = all.slice(0, -1);
        const before = rest.at(-1);
        // Nothing came between the two edits, so the way back of the earlier one goes on from here.
        return before?.rev === last.first - 1 ? [...rest.slice(0, -1), { ...before, rev }] : rest;
      });
    },
  });
  return {
    edit: (ops: (Op | undefined)[], base?: number, written?: () => void) => {
      const real = ops.filter((op) => op !== undefined);
      if (real.length) edit.mutate({ ops: real, base }, { onSuccess: written });
    },
    undo: () => undo.mutate(),
    canUndo: done.length > 0 && !undo.isPending,
    error: edit.error ?? undo.error,
  };
}
