/** A hash, or a text to make it of. */

import { useState } from "preact/hooks";

import { core } from "../chain";
import { useSignal } from "../hooks";
import { Field, type FieldProps } from "./field";
import { reason } from "./registrationResult";

export function HashField(props: Omit<FieldProps, "placeholder" | "lines" | "children">) {
  const { id, label, onValue } = props;
  const signal = useSignal();
  const [text, setText] = useState("");
  const [fault, setFault] = useState<string>();
  const hash = async (next: string): Promise<void> => {
    setText(next);
    try {
      const { keccak256 } = await core();
      if (signal.aborted) return;
      onValue(next === "" ? "" : keccak256(next));
      setFault(undefined);
    } catch (error) {
      setFault(reason(error));
    }
  };
  return (
    <Field {...props} placeholder="0x">
      <details class="hash-maker">
        <summary>Hash a text</summary>
        <label for={`${id}-text`}>Text for the {label.toLowerCase()} (keccak-256 of its UTF-8)</label>
        <textarea
          id={`${id}-text`}
          rows={3}
          spellcheck={false}
          dir="auto"
          value={text}
          onInput={(event) => void hash(event.currentTarget.value)}
        />
        {fault !== undefined && (
          <p class="fault" role="alert">
            The text cannot be hashed: {fault}
          </p>
        )}
      </details>
    </Field>
  );
}
