/** A field that finds a tool by its name or description, and adds a step that calls it. */

import { useId, useState } from "preact/hooks";

import type { ToolName } from "./step-form";

interface Props {
  tools: readonly ToolName[];
  onPick: (tool: ToolName) => void;
}

const MAX_SUGGESTIONS = 12;
const MAX_ABOUT_CHARS = 90;

/** Returns the tools with all words, those with a word in their name first. */
function find(tools: readonly ToolName[], text: string): ToolName[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (tool: ToolName) => words.every((word) => `${tool.qualifiedName} ${tool.description}`.toLowerCase().includes(word));
  const isNamed = (tool: ToolName) => Number(words.every((word) => tool.qualifiedName.toLowerCase().includes(word)));
  return tools.filter(fits).sort((a, b) => isNamed(b) - isNamed(a));
}

export function ToolPicker({ tools, onPick }: Props) {
  const list = useId();
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [chosen, setChosen] = useState(0);
  const all = isOpen ? find(tools, text) : [];
  const found = all.slice(0, MAX_SUGGESTIONS);
  const pick = (tool: ToolName | undefined) => {
    if (!tool) return;
    setText("");
    setOpen(false);
    onPick(tool);
  };
  const steer = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") setChosen((chosen + 1) % Math.max(1, found.length));
    else if (event.key === "ArrowUp") setChosen((chosen - 1 + found.length) % Math.max(1, found.length));
    else if (event.key === "Enter") pick(found[chosen]);
    else if (event.key === "Escape" && isOpen) setOpen(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <span class="tool-picker" data-tools={tools.length}>
      <input
        type="text"
        role="combobox"
        aria-label="Add a step"
        aria-expanded={isOpen && found.length > 0}
        aria-controls={list}
        aria-autocomplete="list"
        {...(isOpen && found.length > 0 ? { "aria-activedescendant": `${list}-${chosen}` } : {})}
        placeholder="Add a step: name or purpose of a tool"
        spellcheck={false}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setChosen(0);
          setOpen(true);
        }}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={steer}
      />
      {isOpen && found.length > 0 && (
        <ul id={list} class="tool-offers" role="listbox" aria-label="Tools">
          {found.map((tool, at) => (
            <li
              key={tool.qualifiedName}
              id={`${list}-${at}`}
              role="option"
              aria-selected={at === chosen}
              onMouseDown={(event) => {
                // The field keeps the focus until the tool is chosen.
                event.preventDefault();
                pick(tool);
              }}
            >
              <span class="mono">{tool.qualifiedName}</span>
              <span class="faint">{tool.description.slice(0, MAX_ABOUT_CHARS)}</span>
            </li>
          ))}
          {all.length > found.length && (
            <li class="faint tool-more" role="presentation">
              and {all.length - found.length} more: type another word
            </li>
          )}
        </ul>
      )}
    </span>
  );
}
