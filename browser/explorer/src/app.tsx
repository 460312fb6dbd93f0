/** The whole page: its head, the view that the address names, its foot, and where the focus goes from one view to the next. */

import { useLayoutEffect, useRef } from "preact/hooks";

import { announce, Announcer } from "./parts/announcer";
import { Boundary } from "./parts/boundary";
import { Footer } from "./parts/footer";
import { Masthead } from "./parts/masthead";
import { routeOf } from "./router";
import { viewOf } from "./views";

/** `address` is the fragment of the page's URL, such as `#/agents?page=2`. */
export function App({ address }: { address: string }) {
  const content = useRef<HTMLElement>(null);
  const route = routeOf(address);
  const View = viewOf(route.segments);
  useFocusOnArrival(address, content);
  return (
    <>
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          // The fragment is the route, so the skip link must not be one.
          event.preventDefault();
          content.current?.focus();
        }}
      >
        Skip to content
      </a>
      <Masthead address={address} segments={route.segments} />
      <main id="content" class="sheet" tabIndex={-1} ref={content}>
        {/* Another query is the same view: what the visitor filters by stays where it is. */}
        <Boundary key={route.segments.join("/")}>
          <View route={route} />
        </Boundary>
      </main>
      <Footer />
      <Announcer />
    </>
  );
}

/**
 * On arrival from elsewhere the browser's own order of things is right. Within the page the heading is where to go on, unless
 * the visitor is busy with a filter that is still there.
 */
function useFocusOnArrival(address: string, content: { readonly current: HTMLElement | null }): void {
  const isFirst = useRef(true);
  useLayoutEffect(() => {
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    const isFiltering = content.current?.querySelector(".filter")?.contains(document.activeElement);
    if (!isFiltering) content.current?.querySelector("h1")?.focus({ preventScroll: true });
    window.scrollTo(0, 0);
    announce("");
  }, [address]);
}
