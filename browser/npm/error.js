/** An error with the code and the HTTP status that the API or the relayer would have answered. */
export class RegistryError extends Error {
  constructor(message, code, status, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "RegistryError";
    this.code = code;
    this.status = status;
  }
}

/** A wasm module once it is ready; what fails says where to look. */
export async function loaded(module) {
  try {
    return await module;
  } catch (cause) {
    const help = "copy the file or pass it to init, as the package's README says of your bundler under Bundlers";
    throw new RegistryError(`The wasm module is not where it is looked for: ${help}`, "NOT_LOADED", 500, cause);
  }
}
