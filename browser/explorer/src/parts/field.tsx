/** A labelled input with its explanation and, where it needs attention, what is wrong with it. */

import type { ComponentChildren } from "preact";

import type { Bound } from "../form";

export interface FieldProps extends Bound {
  id: string;
  label: string;
  help: ComponentChildren;
  placeholder?: string;
  /** Several lines: a text area. */
  lines?: number;
  /** What stands below it. */
  children?: ComponentChildren;
}

export function Field({
  id,
  label,
  help,
  placeholder = "",
  lines,
  value,
  fault,
  onValue,
  inputRef,
  children,
}: FieldProps) {
  const attributes = {
    id,
    placeholder,
    value,
    spellcheck: false,
    autocomplete: "off",
    autocapitalize: "off",
    "aria-describedby": `${id}-help ${id}-fault`,
    "aria-invalid": fault !== undefined,
    ref: inputRef,
  } as const;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {lines === undefined ? (
        <input {...attributes} type="text" onInput={(event) => onValue(event.currentTarget.value)} />
      ) : (
        <textarea {...attributes} rows={lines} dir="auto" onInput={(event) => onValue(event.currentTarget.value)} />
      )}
      <p id={`${id}-help`} class="help">
        {help}
      </p>
      <div id={`${id}-fault`}>
        {fault !== undefined && (
          <p class="fault" role="alert">
            {label} {fault}.
          </p>
        )}
      </div>
      {children}
    </div>
  );
}
