import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { Problem } from "./api/client";
import { router } from "./app/routes";
import { beginFeed } from "./events/feed";
import { refreshOnEvents } from "./events/refresh";
import { currentToken, findToken, onToken } from "./session/token";
import "./styles/tokens.css";
import "./styles/base.css";

// An old page over a new daemon asks for files that are gone: it loads again, once.
addEventListener("vite:preloadError", (event) => {
  const last = Number(sessionStorage.getItem("lifeformd.reloaded") ?? 0);
  if (Date.now() - last < 30_000) return;
  event.preventDefault();
  // A daemon that is away has no new page either.
  fetch("/ui/", { cache: "no-store" }).then((answer) => {
    if (!answer.ok) return;
    sessionStorage.setItem("lifeformd.reloaded", String(Date.now()));
    location.reload();
  });
});

// The daemon may be there while the machine's network is not.
const networkMode = "always";
const queries = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (count, error) => !(error instanceof Problem) && count < 2,
      enabled: () => currentToken() !== null,
      networkMode,
    },
    mutations: { networkMode },
  },
});
// What one person was shown is not shown to the next.
onToken(() => (currentToken() ? queries.resetQueries() : queries.clear()));

refreshOnEvents(queries);

findToken().then(() => {
  beginFeed();
  createRoot(document.getElementById("root")!).render(
    <StrictMode>
      <QueryClientProvider client={queries}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );
});
