export default {
  async test(_controller, { EDGE }) {
    const { status } = await EDGE.fetch("http://edge/livez", { signal: AbortSignal.timeout(5_000) });
    if (status !== 200) throw new Error(`/livez: ${status}`);
  },
};
