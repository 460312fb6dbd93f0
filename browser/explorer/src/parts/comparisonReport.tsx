/** What a comparison of the API's answers with the chain's has found. */

import { hostOf } from "../api";
import type { Source } from "../chain";
import type { Field, Outcome } from "../compare";
import { counted, duration } from "../format";
import { Hex } from "./address";
import { Table } from "./table";
import { ChainText, ChainWord } from "./text";

/** The fields of one answer. */
export interface Compared {
  path: string;
  fields: Field[];
  /** The chain's own refusal, where it has no answer at all. */
  refused?: string;
  ageSeconds: number;
}

export interface ComparisonReportProps {
  compared: Compared[];
  source: Source;
  /** The registry that was asked. */
  registry: string;
  /** Whether that is the visitor's own choice, and not the API's word. */
  isTrusted: boolean;
  /** The API's registry, where it is another than the visitor's. */
  otherRegistry: string | undefined;
}

export function ComparisonReport({ compared, source, registry, isTrusted, otherRegistry }: ComparisonReportProps) {
  const fields = compared.flatMap(({ fields }) => fields);
  const count = (outcome: Outcome): number => fields.filter((field) => field.outcome === outcome).length;
  const refused = compared.filter(({ refused }) => refused !== undefined);
  const isAgreement = count("differ") === 0 && refused.length === 0 && otherRegistry === undefined;
  const age = Math.max(...compared.map(({ ageSeconds }) => ageSeconds));
  const origin = typeof source.rpc === "string" ? hostOf(source.rpc) : source.name;
  return (
    <div class="result" data-verify={isAgreement ? "agreement" : "difference"}>
      <p>
        <strong>{isAgreement ? "Agreement." : "Difference."}</strong>{" "}
        {isAgreement
          ? `The chain gives the same answer: ${counted(count("agree"), "field")} compared.`
          : `${counted(count("differ"), "field differs", "fields differ")}, ${count("agree")} agree.`}
      </p>
      {!isAgreement && age > 0 && (
        <p>The API read its answer {duration(age)} ago. What has happened since is a difference too.</p>
      )}
      {otherRegistry !== undefined && (
        <p>
          The API names another registry than your settings: <Hex text={otherRegistry} />
        </p>
      )}
      {refused.map(({ path, refused }) => (
        <p key={path}>
          <code>{path}</code>: the chain says <q>{refused}</q>
        </p>
      ))}
      <Fields compared={compared} outcome="differ" />
      {count("moving") > 0 && (
        <details>
          <summary>{counted(count("moving"), "field")} not compared: clocks and endpoints</summary>
          <Fields compared={compared} outcome="moving" />
        </details>
      )}
      <p class="muted">
        Asked {origin} about registry <Hex text={registry} />
        {isTrusted ? ", as in your settings." : ", as the API names it."}
      </p>
    </div>
  );
}

/** A table for each answer that has fields of this outcome. */
function Fields({ compared, outcome }: { compared: Compared[]; outcome: Outcome }) {
  const tables = compared.map(({ path, fields }) => ({
    path,
    rows: fields
      .filter((field) => field.outcome === outcome)
      .map(({ path, api, chain }) => [<ChainWord text={path} />, <Side text={api} />, <Side text={chain} />]),
  }));
  return (
    <>
      {tables
        .filter(({ rows }) => rows.length > 0)
        .map(({ path, rows }) => (
          <div key={path}>
            <p>
              <code>{path}</code>
            </p>
            <Table caption={`Fields of ${path}`} head={["Field", "The API says", "The chain says"]} rows={rows} />
          </div>
        ))}
    </>
  );
}

function Side({ text }: { text: string | undefined }) {
  return text === undefined ? <em>absent</em> : <ChainText text={text} />;
}
