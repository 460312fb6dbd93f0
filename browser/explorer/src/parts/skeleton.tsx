/** Room for so many lines, until they are there. */

export function Skeleton({ lines }: { lines: number }) {
  return (
    <div class="skeleton">
      <span class="visually-hidden">Loading</span>
      {Array.from({ length: lines }, (_line, index) => (
        <span key={index} class="skeleton-line" aria-hidden="true" />
      ))}
    </div>
  );
}
