// A canvas: a chat, or the outline of a mind map.
import { useParams } from "@tanstack/react-router";
import { useCanvases } from "../api/queries";
import { useText } from "../i18n";
import { Empty, Found } from "../parts/States";
import { Chat } from "./Chat";
import { MindMap } from "./MindMap";

export function CanvasPage() {
  const { lf, canvas: id } = useParams({ from: "/l/$lf/c/$canvas" });
  const text = useText();
  const canvases = useCanvases(lf);
  return (
    <Found query={canvases}>
      {({ canvases }) => {
        const canvas = canvases.find((one) => one.id === id);
        if (!canvas) return <Empty>{text.states.gone}</Empty>;
        return canvas.type === "chat" ? (
          <Chat key={`${lf}/${id}`} lf={lf} canvas={canvas} />
        ) : (
          <MindMap key={`${lf}/${id}`} lf={lf} canvas={canvas} />
        );
      }}
    </Found>
  );
}
