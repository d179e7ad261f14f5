"""Ten messages a second to the upstream's exchange `orders`, over its HTTP API: something to look at."""

from __future__ import annotations

import base64
import http.client
import json
import os
import time
from pathlib import Path

PATH = "/api/exchanges/%2F/orders/publish"


def main() -> None:
    password = Path(os.environ["TRAFFIC_PASSWORD_FILE"]).read_text(encoding="utf-8").strip()
    login = base64.b64encode(f"{os.environ['TRAFFIC_USER']}:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(os.environ["TRAFFIC_API"], timeout=10)
    message = {"properties": {"delivery_mode": 2}, "routing_key": "orders.paid", "payload_encoding": "string"}
    number = 0
    while True:
        number += 1
        connection.request("POST", PATH, json.dumps(message | {"payload": f"order {number}"}), headers)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise SystemExit(f"publishing to {os.environ['TRAFFIC_API']} failed: {answer.status} {answer.reason}")
        answer.read()
        time.sleep(0.1)


if __name__ == "__main__":
    main()
