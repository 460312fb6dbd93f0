/** A labelled choice of yes or no, with its explanation. */

export interface CheckProps {
  id: string;
  label: string;
  help: string;
  checked: boolean;
  onChecked: (checked: boolean) => void;
}

export function Check({ id, label, help, checked, onChecked }: CheckProps) {
  return (
    <div class="field checkbox">
      <input
        id={id}
        type="checkbox"
        checked={checked}
        aria-describedby={`${id}-help`}
        onChange={(event) => onChecked(event.currentTarget.checked)}
      />
      <label for={id}>{label}</label>
      <p id={`${id}-help`} class="help">
        {help}
      </p>
    </div>
  );
}
