/** A module of the package, as the bundler gives it: a compiled module, or where it is. Either goes into `init`. */
declare const module: string | object;
export default module;
