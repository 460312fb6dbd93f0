/** A form that the page's own code takes: it judges the fields, and nothing is sent by the browser. */

import type { ComponentChildren } from "preact";

interface FormProps {
  class: string;
  role?: "search";
  onSubmit: () => void;
  children: ComponentChildren;
}

export function Form({ onSubmit, ...attributes }: FormProps) {
  return (
    <form
      {...attributes}
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        onSubmit();
      }}
    />
  );
}
