/** A labelled input with its explanation and, where it needs attention, what is wrong with it. */

import { h, replace, type Child } from "../dom";

/** A rule: what is wrong with a text, as the end of a sentence that begins with the field's label. */
export type Rule = (text: string) => string | undefined;

export interface Field {
  element: HTMLElement;
  input: HTMLInputElement | HTMLTextAreaElement;
  /** The text, without space around it. */
  value(): string;
  /** Shows what is wrong, if anything is. False then. */
  check(): boolean;
}

export interface FieldOptions {
  id: string;
  label: string;
  help?: Child;
  value?: string;
  placeholder?: string;
  /** Several lines: a text area. */
  lines?: number;
  rule?: Rule;
}

export function field({ id, label, help, value = "", placeholder = "", lines, rule }: FieldOptions): Field {
  const attributes = {
    id,
    placeholder,
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    "aria-describedby": `${id}-help ${id}-fault`,
  };
  const input =
    lines === undefined
      ? h("input", { ...attributes, type: "text" })
      : h("textarea", { ...attributes, rows: lines, dir: "auto" });
  input.value = value;
  const fault = h("div", { id: `${id}-fault` });
  const text = (): string => input.value.trim();
  return {
    element: h(
      "div",
      { class: "field" },
      h("label", { for: id }, label),
      input,
      h("p", { id: `${id}-help`, class: "help" }, help ?? ""),
      fault,
    ),
    input,
    value: text,
    check() {
      const found = rule?.(text());
      input.setAttribute("aria-invalid", String(found !== undefined));
      replace(fault, found !== undefined && h("p", { class: "fault", role: "alert" }, `${label} ${found}.`));
      return found === undefined;
    },
  };
}

/** Checks all fields and moves to the first that needs attention. */
export function checkAll(fields: Field[]): boolean {
  const wrong = fields.filter((field) => !field.check());
  wrong[0]?.input.focus();
  return wrong.length === 0;
}

/** A rule for fields that may be left empty. */
export function optional(rule: Rule): Rule {
  return (text) => (text === "" ? undefined : rule(text));
}

export const addressRule: Rule = (text) =>
  /^0x[0-9a-fA-F]{40}$/.test(text) ? undefined : "must be 0x and 40 hexadecimal digits";

export const hashRule: Rule = (text) =>
  /^0x[0-9a-fA-F]{64}$/.test(text) ? undefined : "must be 0x and 64 hexadecimal digits";
