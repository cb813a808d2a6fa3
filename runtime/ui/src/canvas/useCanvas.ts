// A live canvas: its socket, which connects again and resumes, and its folded state.
import { useEffect, useRef, useState, useSyncExternalStore } from "react";
import { currentToken, onToken, refuse } from "../session/token";
import { empty, type Folded, type Frame, fold } from "./state";

export type Link = "connecting" | "live" | "offline" | "gone" | "refused";

const DRAW_MS = 100;

export function useCanvas(lifeform: string, canvas: string): { folded: Folded; link: Link } {
  const [shown, show] = useState<Folded>(empty);
  const [link, setLink] = useState<Link>("connecting");
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const token = useSyncExternalStore(onToken, currentToken);

  useEffect(() => {
    let known = empty();
    let socket: WebSocket | null = null;
    let isOver = false;
    let retries = 0;
    let again: ReturnType<typeof setTimeout> | null = null;
    show(known);
    setLink("connecting");

    const draw = (now: boolean) => {
      if (now) {
        if (timer.current) clearTimeout(timer.current);
        timer.current = null;
        show(known);
      } else if (!timer.current) {
        timer.current = setTimeout(() => {
          timer.current = null;
          show(known);
        }, DRAW_MS);
      }
    };

    const connect = () => {
      if (!token || isOver) return;
      const scheme = location.protocol === "https:" ? "wss" : "ws";
      const path = `/v1/lifeforms/${encodeURIComponent(lifeform)}/canvases/${encodeURIComponent(canvas)}/subscribe`;
      const own = new WebSocket(`${scheme}://${location.host}${path}`, ["ailf.canvas.v1", `bearer.${token}`]);
      socket = own;
      own.onopen = () => {
        const resume = known.epoch ? { epoch: known.epoch, rev: known.rev } : undefined;
        own.send(JSON.stringify({ t: "hello", v: 1, resume, want: ["stream"] }));
      };
      own.onmessage = ({ data }) => {
        if (own !== socket) return;
        const frame = JSON.parse(data as string) as Frame;
        try {
          known = fold(known, frame);
        } catch {
          // Frames are missing: what is known may be wrong.
          known = { ...known, epoch: null };
          own.close();
          return;
        }
        if (frame.t === "live") {
          retries = 0;
          setLink("live");
        }
        draw(frame.t !== "stream" && frame.t !== "batch");
      };
      own.onclose = ({ code }) => {
        if (own !== socket || isOver) return;
        if (code === 4401) {
          setLink("refused");
          refuse(token);
        } else if (code === 4404 || code === 4410) setLink("gone");
        else {
          setLink(retries > 0 ? "offline" : "connecting");
          retries += 1;
          again = setTimeout(connect, Math.min(8_000, 400 * 2 ** Math.min(retries, 5)) * (0.75 + Math.random() / 2));
        }
      };
    };
    connect();
    return () => {
      isOver = true;
      if (again) clearTimeout(again);
      if (timer.current) clearTimeout(timer.current);
      timer.current = null;
      socket?.close();
    };
  }, [lifeform, canvas, token]);

  return { folded: shown, link };
}
