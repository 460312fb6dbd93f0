// An Express service that answers with what it reads as the gate's headers, a line each.

import express from "express";

const app = express();
app.use((request, response) => {
  const named = Object.entries(request.headers).filter(([name, value]) => /^kya/i.test(name) && value !== "");
  const lines = named.map(([name, value]) => `${name.toUpperCase().replace(/[^A-Z0-9]/g, "_")}=${value}`);
  response.type("text/plain").send(lines.sort().join("\n"));
});
const server = app.listen(0, "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
