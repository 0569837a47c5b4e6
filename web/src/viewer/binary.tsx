/** Binaries of tools: their preview, if they are images, and their download. */

import { useState } from "preact/hooks";

import { ask, type ApiError } from "../api/client";
import { BlobData, type Json } from "../api/generated";
import { isFields } from "../api/json";
import { Refused, toApiError } from "../ui/fault";
import { download, readBase64 } from "./download";

/** A binary inside a value. Its data is in the store if it has an id, and otherwise in the value itself. */
export interface Binary {
  mimeType: string;
  id: string | null;
  data: string | null;
}

/** Images that browsers show without running anything. SVG can contain scripts, so it is only downloaded. */
const IMAGES = /^image\/(?:png|jpeg|gif|webp|avif|bmp)$/;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** Returns the binary that an object describes: `{"$blob": …}`, or `mimeType` with `data` in base64, as MCP tools return it. */
export function binaryIn(value: Json): Binary | null {
  if (!isFields(value) || typeof value.mimeType !== "string") return null;
  if (typeof value.$blob === "string") return { mimeType: value.mimeType, id: value.$blob, data: null };
  const { data } = value;
  if (typeof data === "string" && data.length % 4 === 0 && BASE64.test(data)) return { mimeType: value.mimeType, id: null, data };
  return null;
}

export function BlobView({ binary }: { binary: Binary }) {
  const { mimeType, id } = binary;
  const [shown, setShown] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const isImage = IMAGES.test(mimeType);
  const read = async (then: (data: string) => void) => {
    setError(null);
    try {
      const data = binary.data ?? (await ask(BlobData, { id: id! })).blob?.base64;
      if (data === undefined) throw new Error("the binary was removed");
      then(data);
    } catch (error) {
      setError(toApiError(error));
    }
  };
  return (
    <div class="binary">
      <span class="buttons">
        <span class="tag">{mimeType}</span>
        {isImage && (
          <button type="button" class="link" aria-expanded={shown !== null} onClick={() => (shown === null ? void read(setShown) : setShown(null))}>
            {shown === null ? "Show the image" : "Hide the image"}
          </button>
        )}
        <button type="button" class="link" onClick={() => void read((data) => download(`${id ?? "binary"}.${extensionOf(mimeType)}`, mimeType, readBase64(data)))}>
          Download
        </button>
      </span>
      {error && <Refused error={error} />}
      {shown !== null && <img src={`data:${mimeType};base64,${shown}`} alt={`Image of the type ${mimeType}`} />}
    </div>
  );
}

function extensionOf(mimeType: string): string {
  return /\/([a-z0-9]+)/.exec(mimeType)?.[1] ?? "bin";
}
