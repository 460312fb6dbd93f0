"""A WSGI service that answers with what it reads as the gate's headers, a line each."""

from wsgiref.simple_server import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


def service(environ, start_response):
    read = [f"{name[5:]}={value}" for name, value in environ.items() if name.startswith("HTTP_KYA") and value]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return ["\n".join(sorted(read)).encode()]


server = make_server("127.0.0.1", 0, service, handler_class=Quiet)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
