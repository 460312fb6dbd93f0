/** The page's beginning: renders the app for the address, and again for each next one. */

import "../styles/main.css";

import { render } from "preact";

import { App } from "./app";
import { listenForWallets } from "./wallets";

const root = document.getElementById("page") as HTMLElement;

function show(): void {
  render(<App address={location.hash} />, root);
}

listenForWallets();
window.addEventListener("hashchange", show);
show();
