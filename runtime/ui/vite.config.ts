import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const daemon = process.env.LIFEFORMD ?? "http://127.0.0.1:7700";

export default defineConfig({
  base: "/ui/",
  test: { include: ["tests/**/*.test.{ts,tsx}"] },
  plugins: [react()],
  html: { cspNonce: "NONCE_OF_THIS_RESPONSE" },
  build: { target: "es2023", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  server: {
    // The daemon refuses other origins than its own.
    proxy: Object.fromEntries(
      ["/v1", "/api", "/health", "/openapi.json"].map((path) => [
        path,
        { target: daemon, ws: true, headers: { origin: daemon } },
      ]),
    ),
  },
});
