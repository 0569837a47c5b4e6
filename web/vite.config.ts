import { defineConfig, type Plugin } from "vite";

/** URL of `faber serve` during development of the page: `FABER_SERVER=http://… npm run dev`. */
const server = process.env.FABER_SERVER ?? "http://127.0.0.1:8080";
const proxied = { target: server, ws: true, changeOrigin: true };

/** Removes two fonts from GraphiQL's style sheet. As text, they are three times as long as all other rules together. */
const withoutFonts: Plugin = {
  name: "without-fonts",
  enforce: "pre",
  transform(code, id) {
    return /graphiql[/\\].*\.css$/.test(id) ? code.replace(/@font-face\s*\{[^}]*\}/g, "") : null;
  },
};

export default defineConfig({
  // Relative URLs, because a proxy may show the page below any path. The server completes them in the HTML files.
  base: "./",
  plugins: [withoutFonts],
  server: { proxy: { "/graphql": proxied, "/graphiql": proxied, "/health": proxied } },
  build: {
    target: "es2022",
    // Assets must be files, because the page's security policy allows `data:` URLs only for images.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rolldownOptions: {
      input: ["index.html", "graphiql.html"],
      // Libraries contain the directive `use client` for frameworks that render on servers. The warning about this directive is suppressed.
      onLog: (level, log, next) => log.code !== "MODULE_LEVEL_DIRECTIVE" && next(level, log),
    },
    chunkSizeWarningLimit: 1_500,
  },
});
