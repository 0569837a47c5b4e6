/** A search field of a list. */

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

import { go } from "../router";
import { Icon } from "./icons";
import { placeOf } from "./words";

interface Props {
  label: string;
  value: string;
  onSearch: (text: string) => void;
  placeholder: string;
}

/** A search field. It searches after a pause in typing. If the text is an id, it opens the page of the object. */
export function SearchBox({ label, value, onSearch, placeholder }: Props) {
  const [text, setText] = useState(value);
  /**
   * The last searched text. When it comes back as `value`, the user may already have typed more, so it does not
   * replace the text.
   */
  const told = useRef(value);
  useLayoutEffect(() => {
    if (value === told.current) return;
    told.current = value;
    setText(value);
  }, [value]);
  useEffect(() => {
    if (text === told.current) return;
    const to = placeOf(text.trim());
    if (to) return go(to);
    const timer = setTimeout(() => {
      told.current = text;
      onSearch(text);
    }, 180);
    return () => clearTimeout(timer);
  }, [text, value]);
  return (
    <label class="search">
      <Icon name="search" />
      <span class="unseen">{label}</span>
      <input type="search" value={text} placeholder={placeholder} onInput={(event) => setText(event.currentTarget.value)} />
    </label>
  );
}
