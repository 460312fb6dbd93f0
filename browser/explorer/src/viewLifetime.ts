/** A view's life: what it started ends when the visitor leaves it. */

/** One view on the screen. */
export interface Scope {
  /** Aborted once another view takes over. */
  readonly signal: AbortSignal;
  /** Says whether the view still waits for what it shows. */
  readonly busy: (isBusy: boolean) => void;
}

/** Runs `tick` now and every second, until it returns false or the view ends. */
export function everySecond(scope: Scope, tick: () => boolean | void): void {
  if (scope.signal.aborted || tick() === false) return;
  const timer = setInterval(() => {
    if (tick() === false) clearInterval(timer);
  }, 1_000);
  scope.signal.addEventListener("abort", () => clearInterval(timer));
}

/** Resolves after so many milliseconds; rejects once the view ends. */
export function pause(scope: Scope, milliseconds: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => reject(scope.signal.reason);
    if (scope.signal.aborted) return stop();
    scope.signal.addEventListener("abort", stop, { once: true });
    setTimeout(() => {
      scope.signal.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
  });
}
