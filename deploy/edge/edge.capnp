# The read API without a Cloudflare account: both Workers in workerd, which is open source, with the index on this machine's disk.
#
#   workerd serve --experimental deploy/edge/edge.capnp -d data=/var/lib/registry-edge
#
# Settings are environment variables, with the names of wrangler.toml: docs/self-hosting.md. `-s http=ADDRESS:PORT` listens elsewhere.

using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    # What is no file of the explorer is the Worker's.
    (name = "edge", assets = (path = "browser/explorer/dist", config = embed "assets.json", userWorker = "api")),
    (name = "api", worker = .api),
    (name = "index", worker = .index),
    (name = "counters", worker = .counters),
    (name = "cron", worker = .cron),
    # The index and the rate counters; empty directories are filled.
    (name = "data", disk = (path = "data", writable = true)),
    # Nodes may be in a private network. The Workers ask no other addresses than those of RPC_URL.
    (name = "internet", network = (allow = ["public", "private"], tlsOptions = (trustBrowserCas = true))),
  ],
  sockets = [
    (name = "http", address = "127.0.0.1:3000", service = "edge", http = (forwardedProtoHeader = "X-Forwarded-Proto")),
  ],
);

# The dates and flags are those of wrangler.toml and wrangler.index.toml.
const api :Workerd.Worker = (
  modules = [
    (name = "index.js", esModule = embed "../../edge-api/build/index.js"),
    (name = "index_bg.wasm", wasm = embed "../../edge-api/build/index_bg.wasm"),
  ],
  compatibilityDate = "2026-10-01",
  compatibilityFlags = ["no_nodejs_compat", "enable_request_signal"],
  bindings = .bindings,
);

const index :Workerd.Worker = (
  modules = [
    (name = "index.js", esModule = embed "../../edge-index/build/index.js"),
    (name = "index_bg.wasm", wasm = embed "../../edge-index/build/index_bg.wasm"),
  ],
  compatibilityDate = "2026-10-01",
  compatibilityFlags = ["no_nodejs_compat"],
  bindings = .bindings,
  # The directory's name: another one would be an empty index.
  durableObjectNamespaces = [(className = "RegistryIndex", uniqueKey = "registry-index", enableSql = true)],
  durableObjectStorage = (localDisk = "data"),
);

# workerd's own KV store.
const counters :Workerd.Worker = (
  modules = [(name = "kv.js", bundled = "/workerd/kv.js")],
  compatibilityDate = "2026-10-01",
  bindings = [
    (name = "SHARD", durableObjectNamespace = "KVNamespace"),
    (name = "BLOBS", service = "data"),
  ],
  durableObjectNamespaces = [(className = "KVNamespace", uniqueKey = "rate-counters", enableSql = true)],
  durableObjectStorage = (localDisk = "data"),
);

# workerd's own schedule: an alarm of the index that has stalled is set again.
const cron :Workerd.Worker = (
  modules = [(name = "cron.js", bundled = "/workerd/cron.js")],
  compatibilityDate = "2026-10-01",
  compatibilityFlags = ["service_binding_extra_handlers"],
  bindings = [
    (name = "SCHEDULE", durableObjectNamespace = "Schedule"),
    (name = "CRONS", json = "{\"INDEX\": [\"*/5 * * * *\"]}"),
    (name = "INDEX", service = "index"),
  ],
  durableObjectNamespaces = [(className = "Schedule", uniqueKey = "schedule", enableSql = true)],
  durableObjectStorage = (localDisk = "data"),
);

# Both Workers have the same. A setting without a value is not set.
const bindings :List(Workerd.Worker.Binding) = [
  (name = "ASSETS", service = (name = "edge", entrypoint = "AssetWorker")),
  (name = "RATE_COUNTERS", kvNamespace = (name = "counters", props = (json = "{\"namespace\": \"rates\"}"))),
  (name = "REGISTRY_INDEX", durableObjectNamespace = (className = "RegistryIndex", serviceName = "index")),
  (name = "REGISTRY_ADDRESS", fromEnvironment = "REGISTRY_ADDRESS"),
  (name = "RPC_URL", fromEnvironment = "RPC_URL"),
  (name = "CHAIN_ID", fromEnvironment = "CHAIN_ID"),
  (name = "RPC_HEDGING", fromEnvironment = "RPC_HEDGING"),
  (name = "MULTICALL3_ADDRESS", fromEnvironment = "MULTICALL3_ADDRESS"),
  (name = "RPC_TIMEOUT_SECONDS", fromEnvironment = "RPC_TIMEOUT_SECONDS"),
  (name = "RPC_DEADLINE_SECONDS", fromEnvironment = "RPC_DEADLINE_SECONDS"),
  (name = "MAX_HEAD_AGE_SECONDS", fromEnvironment = "MAX_HEAD_AGE_SECONDS"),
  (name = "AGENT_TTL_SECONDS", fromEnvironment = "AGENT_TTL_SECONDS"),
  (name = "LINEAGE_TTL_SECONDS", fromEnvironment = "LINEAGE_TTL_SECONDS"),
  (name = "KYA_TTL_SECONDS", fromEnvironment = "KYA_TTL_SECONDS"),
  (name = "RATE_LIMIT_PER_MINUTE", fromEnvironment = "RATE_LIMIT_PER_MINUTE"),
  (name = "RATE_LIMIT_PER_MINUTE_IPV6_48", fromEnvironment = "RATE_LIMIT_PER_MINUTE_IPV6_48"),
  (name = "RATE_LIMIT_WINDOW_SECONDS", fromEnvironment = "RATE_LIMIT_WINDOW_SECONDS"),
  (name = "RATE_LIMITER", fromEnvironment = "RATE_LIMITER"),
  (name = "INDEX", fromEnvironment = "INDEX"),
  (name = "INDEX_LOCATION_HINT", fromEnvironment = "INDEX_LOCATION_HINT"),
  (name = "VERDICT_KEYS", fromEnvironment = "VERDICT_KEYS"),
  (name = "VERDICT_ISSUER", fromEnvironment = "VERDICT_ISSUER"),
  (name = "MCP_ORIGINS", fromEnvironment = "MCP_ORIGINS"),
  (name = "FORWARDER_ADDRESS", fromEnvironment = "FORWARDER_ADDRESS"),
  (name = "RELAYER_URLS", fromEnvironment = "RELAYER_URLS"),
  (name = "DOCUMENT_URLS", fromEnvironment = "DOCUMENT_URLS"),
  (name = "KYA_SOURCE", fromEnvironment = "KYA_SOURCE"),
  (name = "CHANGES_STREAM_SECONDS", fromEnvironment = "CHANGES_STREAM_SECONDS"),
  (name = "INDEX_SELF_CONTAINED_CODE", fromEnvironment = "INDEX_SELF_CONTAINED_CODE"),
  (name = "INDEX_SPOT_CHECKS", fromEnvironment = "INDEX_SPOT_CHECKS"),
  (name = "CHANGES_STREAMS_PER_CLIENT", fromEnvironment = "CHANGES_STREAMS_PER_CLIENT"),
  (name = "CHANGES_STREAMS_PER_INSTANCE", fromEnvironment = "CHANGES_STREAMS_PER_INSTANCE"),
  (name = "EVIDENCE_LAYOUT", fromEnvironment = "EVIDENCE_LAYOUT"),
];
