/** Hooks for what ends when a component leaves the screen: requests and clocks. */

import { useLayoutEffect, useState } from "preact/hooks";

/** A signal that is aborted once the component is gone. */
export function useSignal(): AbortSignal {
  const [controller] = useState(() => new AbortController());
  // A layout effect: another one's cleanup is not registered before the first paint, and a view can be left before that.
  useLayoutEffect(() => () => controller.abort(), []);
  return controller.signal;
}

/** The time in milliseconds, each second anew, up to the first time that is not before `end`. */
export function useNow(end: number): number {
  const [now, setNow] = useState(() => Date.now());
  const isOver = now >= end;
  useLayoutEffect(() => {
    if (isOver) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 1_000);
    return () => clearInterval(timer);
  }, [isOver]);
  return now;
}
