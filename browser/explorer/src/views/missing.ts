/** An address that names no view. */

import { h } from "../dom";
import { hrefTo } from "../router";
import { heading, type Draw } from "../view";

export const missing: Draw = () => ({
  title: "No such page",
  body: [
    heading("No such page"),
    h("p", {}, "This address names no view. ", h("a", { href: hrefTo([]) }, "Look up a wallet or an agent"), "."),
  ],
});
