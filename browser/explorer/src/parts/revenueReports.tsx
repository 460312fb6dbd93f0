/** An agent's revenue as it reported it: sums, charts, and a page of reports. */

import type { RevenueHistory } from "../documents";
import { counted, units, whole } from "../format";
import { hrefTo } from "../router";
import { Time } from "./moment";
import { Pager } from "./pager";
import { RevenueCharts } from "./revenueChart";
import { Table } from "./table";
import { ChainWord } from "./text";

export function RevenueReports({ id, history }: { id: string; history: RevenueHistory }) {
  const { data, total, offset, limit } = history;
  const [from, all, step] = [BigInt(offset), BigInt(total), BigInt(limit)];
  const at = (start: bigint): string => hrefTo(["agent", id], { offset: start === 0n ? undefined : start });
  if (all === 0n) return <p class="empty">Nothing reported yet.</p>;
  return (
    <>
      <Totals history={history} />
      <RevenueCharts reports={data} />
      <Table
        caption="Revenue reports"
        head={["Reported", "Period", "Category", "Currency", "Amount"]}
        rows={data.map((report) => [
          <Time at={report.reportedAt} />,
          <>
            <Time at={report.periodStart} shown="day" /> to <Time at={report.periodEnd} shown="day" />
          </>,
          <ChainWord text={report.category} />,
          <ChainWord text={report.currency} />,
          units(report.amount),
        ])}
        numeric={[4]}
      />
      {(all > step || from > 0n) && (
        <Pager
          label="Revenue reports"
          shown={
            data.length === 0
              ? "Nothing on this page"
              : `${whole(from + 1n)} to ${whole(from + BigInt(data.length))} of ${whole(total)}`
          }
          previous={from > 0n ? at(from > step ? from - step : 0n) : undefined}
          next={from + step < all ? at(from + step) : undefined}
        />
      )}
    </>
  );
}

/** Sums by currency, where the page holds every report there is. */
function Totals({ history: { data, total } }: { history: RevenueHistory }) {
  if (BigInt(data.length) !== BigInt(total)) return null;
  const sums = new Map<string, bigint>();
  for (const { currency, amount } of data) sums.set(currency, (sums.get(currency) ?? 0n) + BigInt(amount));
  return (
    <p>
      {counted(total, "report")}:{" "}
      {[...sums].map(([currency, sum], index) => (
        <span key={currency}>
          {index > 0 && ", "}
          <strong class="amount">{units(sum)}</strong> <ChainWord text={currency} />
        </span>
      ))}
      . As the agent reported it.
    </p>
  );
}
