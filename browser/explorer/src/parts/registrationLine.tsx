/** When agents were registered: a mark for each on a line of time. */

import type { DetailedStats } from "../documents";
import { clock, day } from "../format";
import { timeAxis, TimeAxis } from "./timeAxis";

/** The line of these registrations, newest first; none where there is nothing to compare. */
export function RegistrationLine({ registrations }: { registrations: DetailedStats["recentRegistrations"] }) {
  const [newest, oldest] = [registrations[0], registrations.at(-1)];
  if (newest === undefined || oldest === undefined || registrations.length < 2) return null;
  const axis = timeAxis(oldest.registeredAt, newest.registeredAt);
  return (
    <figure class="chart">
      <div class="plot line" aria-hidden="true">
        {registrations.map(({ agentId, registeredAt, status }) => (
          <span
            key={agentId}
            class="mark"
            data-kind={status}
            title={`Agent ${agentId}: ${day(registeredAt)}, ${clock(registeredAt)}`}
            style={{ left: axis.place(registeredAt) }}
          />
        ))}
      </div>
      <TimeAxis axis={axis} />
      <figcaption class="visually-hidden">Registrations over time; the table below has each of them.</figcaption>
    </figure>
  );
}
