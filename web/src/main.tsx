import "./styles/base.css";
import "./styles/parts.css";
import "./styles/pages.css";

import { render } from "preact";

import { App } from "./app";
import { followLinks } from "./router";
import { applyTheme } from "./ui/theme";

applyTheme();
followLinks();
render(<App />, document.getElementById("app")!);
