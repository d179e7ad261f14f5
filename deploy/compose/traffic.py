"""Ten messages a second to the upstream's exchange `orders`, over its HTTP API: something to look at."""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.request
from pathlib import Path


def main() -> None:
    api = os.environ["TRAFFIC_API"].rstrip("/")
    password = Path(os.environ["TRAFFIC_PASSWORD_FILE"]).read_text(encoding="utf-8").strip()
    login = base64.b64encode(f"{os.environ['TRAFFIC_USER']}:{password}".encode()).decode()
    number = 0
    while True:
        number += 1
        _publish(f"{api}/api/exchanges/%2F/orders/publish", login, f"order {number}")
        time.sleep(0.1)


def _publish(url: str, login: str, body: str) -> None:
    message = {
        "properties": {"delivery_mode": 2},
        "routing_key": "orders.paid",
        "payload": body,
        "payload_encoding": "string",
    }
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    urllib.request.urlopen(request, timeout=10).close()


if __name__ == "__main__":
    main()
