/** Text from tools and users. Invisible characters, and characters that change the direction of the text, are shown by name. */

/** Matches control characters except line feeds and tabs, characters without width, and characters that change the direction. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;
const EACH = new RegExp(`(${HIDDEN.source})`);

const CONTROLS =
  "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");

/** A text that cannot change the direction of the text beside it. */
export function Plain({ text }: { text: string }) {
  if (!HIDDEN.test(text)) return <bdi>{text}</bdi>;
  return (
    <bdi>
      {text.split(EACH).map((part, at) =>
        at % 2 === 1 ? (
          <span key={at} class="hidden-letter">
            {nameOf(part)}
          </span>
        ) : (
          part
        ),
      )}
    </bdi>
  );
}

/** Replaces hidden characters by their names as text, for a canvas or the title of the window. */
export function plain(text: string): string {
  if (!HIDDEN.test(text)) return text;
  return text
    .split(EACH)
    .map((part, at) => (at % 2 === 1 ? nameOf(part) : part))
    .join("");
}

function nameOf(letter: string): string {
  const code = letter.codePointAt(0)!;
  const control = CONTROLS[code];
  if (control) return control;
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}
