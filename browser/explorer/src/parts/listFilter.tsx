/** What a list of agents is searched for, filtered by and sorted by: each choice is another address. */

import { useLayoutEffect } from "preact/hooks";

import { STATUSES } from "../documents";
import { addressRule, optional, useForm } from "../form";
import { DEFAULT_LIMIT, isFiltered, listHref, type Asked } from "../listing";
import { go } from "../router";
import { AgentLink } from "./agent";
import { Field } from "./field";
import { Form } from "./form";
import { Select } from "./select";

const STATUS_OPTIONS = [["", "All"], ...STATUSES.map((name) => [name, name])] as [string, string][];
const COMPLIANCE: [string, string][] = [
  ["", "All"],
  ["true", "Compliant"],
  ["false", "Not compliant"],
];
const ORDERS: [string, string][] = [
  ["-id", "Newest first"],
  ["id", "Oldest first"],
  ["-attestation", "Last attested first"],
  ["attestation", "Longest unattested first"],
];
const LIMITS = ["20", "50", "100"].map((limit): [string, string] => [limit, limit]);
/** What is typed, and searched for once it is all there. */
const TYPED = ["q", "haftungsperson", "creator"] as const;

export function ListFilter({ asked }: { asked: Asked }) {
  const form = useForm(() => ({ q: asked.q, haftungsperson: asked.haftungsperson, creator: asked.creator }), {
    haftungsperson: optional(addressRule),
    creator: optional(addressRule),
  });
  // Back, and a link to another list, change what is asked for in the same form.
  useLayoutEffect(
    () => TYPED.forEach((name) => form.fill(name, () => asked[name])),
    TYPED.map((name) => asked[name]),
  );
  const apply = (change: Partial<Asked>): void => go(listHref({ ...asked, page: "", cursor: "", ...change }));
  const search = (): void => {
    if (form.check()) apply(Object.fromEntries(TYPED.map((name) => [name, form.text(name)])));
  };
  return (
    <Form class="filter" onSubmit={search}>
      <Field {...form.bind("q")} id="q" label="Words in the scope" help="The last may be the beginning of one." />
      <Field {...form.bind("haftungsperson")} id="person" label="Liable person" placeholder="0x…" help="A wallet." />
      <Field {...form.bind("creator")} id="creator" label="Creator" placeholder="0x…" help="A wallet." />
      <div class="filter-submit">
        <button type="submit" class="primary">
          Search
        </button>
      </div>
      <Select
        id="status"
        label="Status"
        options={STATUS_OPTIONS}
        value={asked.status}
        onValue={(status) => apply({ status })}
      />
      <Select
        id="compliant"
        label="Compliance"
        options={COMPLIANCE}
        value={asked.compliant}
        onValue={(compliant) => apply({ compliant })}
      />
      <Select id="sort" label="Order" options={ORDERS} value={asked.sort} onValue={(sort) => apply({ sort })} />
      <Select
        id="limit"
        label="Per page"
        options={LIMITS}
        value={asked.limit || DEFAULT_LIMIT}
        onValue={(limit) => apply({ limit })}
      />
      {isFiltered(asked) && (
        <p class="filter-sum">
          <Lineage asked={asked} />
          <a href={listHref({ sort: asked.sort, limit: asked.limit })}>Show all agents</a>
        </p>
      )}
    </Form>
  );
}

/** What leads here from a lineage or a chart, and has no field. */
function Lineage({ asked: { parent, generation } }: { asked: Asked }) {
  return (
    <>
      {parent === "0" && "Roots only. "}
      {parent !== "" && parent !== "0" && (
        <>
          Children of <AgentLink id={parent} /> only.{" "}
        </>
      )}
      {generation !== "" && `Generation ${generation} only. `}
    </>
  );
}
