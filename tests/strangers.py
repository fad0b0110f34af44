"""Servers on loopback that are not Gangline's, and answer everything alike."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import trustme


@contextmanager
def somebody(status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> Iterator[ThreadingHTTPServer]:
    """A server that is no Gangline server, and answers everything alike. Status 0: it hangs up without a word."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if status == 0:
                self.close_connection = True
                return
            self.send_response_only(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def speaking_tls(certificate: trustme.LeafCert, status: int = 404, body: bytes = b"") -> Iterator[int]:
    """The same behind TLS; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    with somebody(status, body) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        yield server.server_port
