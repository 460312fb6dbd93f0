# Exit status 0 where the edge on this machine lives, for a container's health check, which has no shell and no curl:
#
#   workerd test deploy/edge/health.capnp

using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "health", worker = (
      modules = [(name = "health.mjs", esModule = embed "health.mjs")],
      compatibilityDate = "2026-10-01",
      bindings = [(name = "EDGE", service = "edge")],
    )),
    (name = "edge", external = (address = "127.0.0.1:3000", http = ())),
  ],
);
