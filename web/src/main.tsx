import "./styles/base.css";
import "./styles/parts.css";
import "./styles/pages.css";
import "./styles/console.css";

import { render } from "preact";

import { App } from "./app";
import { followLinks, prefixLinks } from "./router";
import { followTheme } from "./ui/theme";

followTheme();
followLinks();
prefixLinks();
render(<App />, document.getElementById("app")!);
