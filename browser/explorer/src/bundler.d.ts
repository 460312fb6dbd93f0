/** What the bundler takes besides TypeScript. */
declare module "*.css";
declare module "*.wasm" {
  const address: string;
  export default address;
}
