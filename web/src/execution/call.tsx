/** The tool and the parameters of a call that needs a person's approval or decision. */

import { print } from "../api/json";
import { omittedBytes } from "../ui/json";
import { Plain } from "../ui/plain";
import type { AskedCall } from "./findings";

export function Call({ toolName, parameters, forEach }: AskedCall) {
  const bytes = omittedBytes(parameters);
  const text = bytes === null ? print(parameters ?? {}) : `${bytes.toLocaleString("en")} bytes of parameters`;
  return (
    <code class="call" tabIndex={0} role="group" aria-label="The call that would be made">
      <strong>{toolName}</strong> <Plain text={text} />
      {forEach && (
        <>
          {"\n"}for each item of <Plain text={forEach} />
        </>
      )}
    </code>
  );
}
