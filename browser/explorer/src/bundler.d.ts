/** What the bundler takes besides TypeScript. */
declare module "*.css";
