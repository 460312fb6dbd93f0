/** A form's texts, the rules they have to keep, and what is wrong with them. */

import { useRef, useState } from "preact/hooks";

/** What is wrong with a text, as the end of a sentence that begins with the field's label. */
export type Rule = (text: string) => string | undefined;

type Input = HTMLInputElement | HTMLTextAreaElement;

/** What a form gives to one of its fields. */
export interface Bound {
  value: string;
  fault: string | undefined;
  onValue: (value: string) => void;
  inputRef: (input: Input | null) => void;
}

export interface Form<Name extends string> {
  /** The properties of a field. */
  bind(name: Name): Bound;
  /** The text as typed. */
  values: Readonly<Record<Name, string>>;
  /** The text, trimmed. */
  text(name: Name): string;
  /** Sets the text to a function of the current one. */
  fill(name: Name, change: (before: string) => string): void;
  /** Checks all fields and moves to the first that needs attention. True if none does. */
  check(): boolean;
}

/** A text without space around it, and without the invisible marks that come along where an address is copied. */
export const trimmed = (text: string): string => text.replace(/^[\s\p{Cf}]+|[\s\p{Cf}]+$/gu, "");

/** A form. Its fields begin with these texts and are checked in their order. */
export function useForm<Name extends string>(
  initial: () => Record<Name, string>,
  rules: Partial<Record<Name, Rule>>,
): Form<Name> {
  const [values, setValues] = useState(initial);
  const [faults, setFaults] = useState<Partial<Record<Name, string>>>({});
  const inputs = useRef(new Map<Name, Input>());
  const text = (name: Name): string => trimmed(values[name]);
  const fill = (name: Name, change: (before: string) => string): void =>
    setValues((before) => ({ ...before, [name]: change(before[name]) }));
  return {
    values,
    text,
    fill,
    bind: (name) => ({
      value: values[name],
      fault: faults[name],
      onValue: (value) => fill(name, () => value),
      inputRef: (input) => void (input === null ? inputs.current.delete(name) : inputs.current.set(name, input)),
    }),
    check() {
      const found: Partial<Record<Name, string>> = {};
      const wrong = (Object.keys(values) as Name[]).filter((name) => {
        const fault = rules[name]?.(text(name));
        if (fault !== undefined) found[name] = fault;
        return fault !== undefined;
      });
      setFaults(found);
      const [first] = wrong;
      if (first !== undefined) inputs.current.get(first)?.focus();
      return wrong.length === 0;
    },
  };
}

/** A rule for fields that may be left empty. */
export function optional(rule: Rule): Rule {
  return (text) => (text === "" ? undefined : rule(text));
}

export const addressRule: Rule = (text) =>
  /^0x[0-9a-fA-F]{40}$/.test(text) ? undefined : "must be 0x and 40 hexadecimal digits";

export const hashRule: Rule = (text) =>
  /^0x[0-9a-fA-F]{64}$/.test(text) ? undefined : "must be 0x and 64 hexadecimal digits";
