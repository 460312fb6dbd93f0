/** Revenue over time: a row of columns for each currency, since amounts of two currencies cannot be compared. */

import type { RevenueReport } from "../documents";
import { day, units } from "../format";
import { ChainWord } from "./text";
import { timeAxis, TimeAxis } from "./timeAxis";

/** An agent may name any number of currencies; more than these are in the table only. */
const MOST = 4;

/** Charts of these reports, oldest first; none where a chart would say no more than a line of text. */
export function RevenueCharts({ reports }: { reports: RevenueReport[] }) {
  const [first, last] = [reports[0], reports.at(-1)];
  if (first === undefined || last === undefined || reports.length < 2) return null;
  const byCurrency = [...Map.groupBy(reports, ({ currency }) => currency)];
  const left = byCurrency.length - MOST;
  return (
    <>
      <div class="charts">
        {byCurrency.slice(0, MOST).map(([currency, own]) => (
          <Chart key={currency} currency={currency} reports={own} from={first.reportedAt} to={last.reportedAt} />
        ))}
      </div>
      {left > 0 && <p class="note">{left} more currencies are in the table below.</p>}
    </>
  );
}

interface ChartProps {
  currency: string;
  reports: RevenueReport[];
  /** The ends of the axis, which all currencies share. */
  from: string;
  to: string;
}

function Chart({ currency, reports, from, to }: ChartProps) {
  const axis = timeAxis(from, to);
  const largest = reports.reduce((most, { amount }) => (amount > most ? amount : most), 0 as RevenueReport["amount"]);
  return (
    <figure class="chart">
      <figcaption>
        <ChainWord text={currency} />
        <span class="muted"> up to {units(largest)} a report</span>
      </figcaption>
      <div class="plot" aria-hidden="true">
        {reports.map(({ amount, reportedAt }, index) => (
          <span
            key={index}
            class="column"
            title={`${day(reportedAt)}: ${units(amount)}`}
            style={{ left: axis.place(reportedAt), height: `${(100 * Number(amount)) / (Number(largest) || 1)}%` }}
          />
        ))}
      </div>
      <TimeAxis axis={axis} />
      <p class="visually-hidden">The table below has every figure.</p>
    </figure>
  );
}
