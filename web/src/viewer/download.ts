/** Offers a value to the user as a file. */

/** Starts the download of a text or of bytes. */
export function download(name: string, mimeType: string, content: string | Uint8Array<ArrayBuffer>): void {
  const url = URL.createObjectURL(new Blob([content], { type: mimeType }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  // The browser reads the data after the click, so the address stays valid for a while.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export function readBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
