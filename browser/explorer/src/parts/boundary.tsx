/** Shows why something could not be shown, in its place. */

import type { ComponentChildren } from "preact";
import { useErrorBoundary } from "preact/hooks";

import { Failure } from "./failure";

/** Its children, or the failure that one of them threw when it was rendered. */
export function Boundary({ children, again }: { children: ComponentChildren; again?: () => void }) {
  const [error] = useErrorBoundary();
  return error === undefined ? <>{children}</> : <Failure error={error} again={again} />;
}
