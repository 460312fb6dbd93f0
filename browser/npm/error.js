/** An error with the code and the HTTP status that the API or the relayer would have answered. */
export class RegistryError extends Error {
  constructor(message, code, status, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "RegistryError";
    this.code = code;
    this.status = status;
  }
}
