// Who is at a canvas now: shown to others while the page is open, and asked for as often.
import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { api, data } from "../api/client";

const EVERY_MS = 10_000;
const TTL_S = 25;

export interface Present {
  who: string;
  state: { node?: string };
}

export function usePresence(lf: string, canvas: string, node: string | undefined): Present[] {
  const path = { id: lf, canvas };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the path is of these two
  useEffect(() => {
    const show = () =>
      data(
        api.POST("/v1/lifeforms/{id}/canvases/{canvas}/presence", {
          params: { path },
          body: { state: (node ? { node } : {}) as never, ttl: TTL_S },
        }),
      ).catch(() => undefined);
    show();
    const timer = setInterval(() => document.visibilityState === "visible" && show(), EVERY_MS);
    return () => clearInterval(timer);
  }, [lf, canvas, node]);
  const found = useQuery({
    queryKey: ["presence", lf, canvas],
    queryFn: () => data(api.GET("/v1/lifeforms/{id}/canvases/{canvas}/presence", { params: { path } })),
    refetchInterval: EVERY_MS / 2,
    retry: false,
  });
  return ((found.data as unknown as { present?: Present[] } | undefined)?.present ?? []) as Present[];
}
