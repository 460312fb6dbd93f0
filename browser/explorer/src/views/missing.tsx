/** An address that names no view. */

import { Heading } from "../parts/heading";
import { hrefTo } from "../router";

export function MissingView() {
  return (
    <>
      <Heading title="No such page" />
      <p>
        This address names no view. <a href={hrefTo([])}>Look up a wallet or an agent</a>.
      </p>
    </>
  );
}
