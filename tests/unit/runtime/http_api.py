"""An HTTP API that answers what a test says, as a broker with nothing in it does otherwise."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

ENDS_WITHIN = 0.02  # seconds


@dataclass
class HttpApi:
    """`answers` by path, without `/api/` and the query; what is callable is asked each time, a number is a refusal."""

    port: int = 0
    answers: dict[str, Any] = field(
        default_factory=lambda: {
            "overview": {"cluster_name": "dc2", "rabbitmq_version": "4.0.5"},
            "vhosts": [{"name": "/"}],
            "parameters": [],
            "policies": [],
            "exchanges/%2F": [],
            "queues/%2F": [],
        }
    )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def http_api(tls: ssl.SSLContext | None = None) -> Iterator[HttpApi]:
    api = HttpApi()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = api.answers.get(self.path.removeprefix("/api/").partition("?")[0])
            if callable(answer):
                answer = answer()
            missing = {"error": "Object Not Found", "reason": "Not Found"}
            status = answer if isinstance(answer, int) else 404 if answer is None else 200
            body = json.dumps(answer if status == 200 else missing).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # who asked may have given up
                self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nobody reads it."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.port = server.server_port
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(ENDS_WITHIN,), daemon=True).start()
        yield api
        server.shutdown()
