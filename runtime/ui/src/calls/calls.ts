// The recorded model calls of an account, newest first: what was sent with what came back.
import { useInfiniteQuery } from "@tanstack/react-query";
import { api, data, type Entry } from "../api/client";
import type { Said } from "./parts";

export interface Call {
  id: string;
  seq: number;
  at: string;
  by: string;
  /** The nearest cause, such as the step of a job. */
  cause: string | undefined;
  model: string;
  provider: string;
  messages: Said[];
  tools: number;
  outputMax: number | undefined;
  /** The end of the call; absent while it runs, or if the daemon was killed while it ran. */
  end?: {
    at: string;
    text: string | undefined;
    toolCalls: unknown[];
    error: string | undefined;
    charged: { tokens: number; micro_usd: number } | undefined;
    usage: { prompt_tokens: number; completion_tokens: number } | undefined;
  };
}

const PAGE = 100;

type Sent = { call: string; model: string; provider: string; messages: Said[]; tools: number; max_tokens?: number };
type End = {
  call: string;
  text?: string;
  tool_calls?: unknown[];
  error?: string;
  reason?: string;
  charged?: { tokens: number; micro_usd: number };
  usage?: { prompt_tokens: number; completion_tokens: number };
};

/** Pairs the entries of a record, which are newest first: an end stands before its beginning. */
export function paired(entries: Entry[]): Call[] {
  const ends = new Map<string, Call["end"]>();
  const calls: Call[] = [];
  for (const { seq, at, by, cause, kind, data } of entries) {
    if (kind === "sent") {
      const sent = data as unknown as Sent;
      calls.push({
        id: sent.call,
        seq,
        at,
        by: String(by),
        cause: (cause as unknown as string[]).at(-1),
        model: sent.model,
        provider: sent.provider,
        messages: Array.isArray(sent.messages) ? sent.messages : [],
        tools: sent.tools,
        outputMax: sent.max_tokens,
        end: ends.get(sent.call),
      });
    } else {
      const end = data as unknown as End;
      if (!end.call) continue;
      ends.set(end.call, {
        at,
        text: end.text,
        toolCalls: end.tool_calls ?? [],
        error: end.error ?? end.reason,
        charged: end.charged,
        usage: end.usage,
      });
    }
  }
  return calls;
}

export function useCalls(id: string) {
  return useInfiniteQuery({
    queryKey: ["calls", id],
    queryFn: ({ pageParam }) =>
      data(
        api.GET("/v1/lifeforms/{id}/calls", {
          params: { path: { id }, query: { order: "desc", limit: PAGE, before: pageParam } },
        }),
      ),
    initialPageParam: undefined as number | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    retry: false,
  });
}
