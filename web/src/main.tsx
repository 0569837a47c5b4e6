import "./styles/base.css";
import "./styles/parts.css";
import "./styles/pages.css";

import { render } from "preact";

import { App } from "./app";
import { followLinks } from "./router";
import { followTheme } from "./ui/theme";

followTheme();
followLinks();
render(<App />, document.getElementById("app")!);
