/** A labelled choice. */

export interface SelectProps<Value extends string> {
  id: string;
  label: string;
  /** Values, and how they are called. */
  options: [Value, string][];
  /** One that is no option stays what it is, and none is shown as chosen. */
  value: Value;
  onValue: (value: Value) => void;
}

export function Select<Value extends string>({ id, label, options, value, onValue }: SelectProps<Value>) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onValue(event.currentTarget.value as Value)}>
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}
