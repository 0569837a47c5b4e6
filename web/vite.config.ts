import { defineConfig, type Plugin } from "vite";

/** Where `faber serve` listens while the page is developed: `FABER_SERVER=http://… npm run dev`. */
const server = process.env.FABER_SERVER ?? "http://127.0.0.1:8080";
const proxied = { target: server, ws: true, changeOrigin: true };

/** GraphiQL's style holds two fonts as text, which are three times as long as all the rest of it. */
const withoutFonts: Plugin = {
  name: "without-fonts",
  enforce: "pre",
  transform(code, id) {
    return /graphiql[/\\].*\.css$/.test(id) ? code.replace(/@font-face\s*\{[^}]*\}/g, "") : null;
  },
};

export default defineConfig({
  plugins: [withoutFonts],
  server: { proxy: { "/graphql": proxied, "/graphiql": proxied, "/health": proxied } },
  build: {
    target: "es2022",
    // What is loaded must be a file: the policy of the page allows no `data:` but images.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      input: ["index.html", "graphiql.html"],
      // Libraries say `use client` to frameworks that render on servers.
      onLog: (level, log, next) => log.code !== "MODULE_LEVEL_DIRECTIVE" && next(level, log),
    },
    chunkSizeWarningLimit: 1_500,
  },
});
