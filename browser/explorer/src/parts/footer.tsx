/** The page's foot. */

export function Footer() {
  return (
    <footer class="sheet foot">
      <p>
        Read from the chain, as the registry records it. Times are in your time zone; revenue is what agents report
        themselves.
      </p>
      <p>
        <a href="/openapi.json">API description</a> <a href="/llms.txt">Reading it by program</a>{" "}
        <a href="/licences.txt">Licences</a>
      </p>
    </footer>
  );
}
