/** The account that signs, and how. */
export interface Signer {
  /** The account's address. */
  address: string;
  /** The chain it is on. */
  chainId: number | bigint;
  /**
   * Signs these bytes as a message (EIP-191), and gives 65 bytes, or as many as an account with code takes, as bytes
   * or in hexadecimal digits.
   */
  signMessage: (message: Uint8Array) => Promise<string | ArrayLike<number>>;
  /** How long the signature is valid; 60 unless given. Gates take 60 unless they are configured for more. */
  validSeconds?: number;
  /** For tests: the nonce, instead of a random one. */
  nonce?: string;
  /** For tests: unix milliseconds, instead of the clock. */
  now?: number;
}

/**
 * Signs a request (ERC-8128): scheme, authority, method, path, query, its content, and the type that it names.
 * Each signature admits one request, so that a request that is sent again is signed again. The request is not sent.
 */
export function signRequest(request: Request, signer: Signer): Promise<Request>;
