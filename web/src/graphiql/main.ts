/** Starts GraphiQL with example operations and with the page's access token. */

import "graphiql/style.css";
import "./graphiql.css";

import { createGraphiQLFetcher } from "@graphiql/toolkit";
import { GraphiQL } from "graphiql";
import { createClient } from "graphql-ws";
import { createElement } from "react";
import { createRoot } from "react-dom/client";

import { token } from "../api/connection";
import { EXAMPLES } from "./examples";

const secret = token();
const headers: Record<string, string> = secret ? { authorization: `Bearer ${secret}` } : {};
const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/graphql`;
const fetcher = createGraphiQLFetcher({
  url: "/graphql",
  headers,
  wsClient: createClient({ url, connectionParams: secret ? { Authorization: `Bearer ${secret}` } : {} }),
});

createRoot(document.getElementById("graphiql")!).render(
  createElement(GraphiQL, { fetcher, defaultTabs: EXAMPLES, defaultEditorToolsVisibility: "variables", shouldPersistHeaders: false }),
);
