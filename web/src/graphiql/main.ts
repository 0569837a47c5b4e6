/** Starts GraphiQL with example operations and with the page's access token. */

import "graphiql/style.css";
import "./graphiql.css";

import { createGraphiQLFetcher } from "@graphiql/toolkit";
import { GraphiQL } from "graphiql";
import { createClient } from "graphql-ws";
import { createElement } from "react";
import { createRoot } from "react-dom/client";

import { PAGE_HEADER, token } from "../api/connection";
import { PREFIX, socketUrl } from "../prefix";
import { EXAMPLES } from "./examples";

const secret = token();
const headers: Record<string, string> = { ...PAGE_HEADER, ...(secret ? { authorization: `Bearer ${secret}` } : {}) };
const fetcher = createGraphiQLFetcher({
  url: `${PREFIX}/graphql`,
  headers,
  wsClient: createClient({ url: socketUrl(), connectionParams: secret ? { Authorization: `Bearer ${secret}` } : {} }),
});

createRoot(document.getElementById("graphiql")!).render(
  createElement(GraphiQL, { fetcher, defaultTabs: EXAMPLES, defaultEditorToolsVisibility: "variables", shouldPersistHeaders: false }),
);
