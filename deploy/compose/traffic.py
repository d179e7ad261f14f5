"""Publish ten messages per second to the upstream's exchange `orders`, as a user's program does."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path

import aio_pika

PAUSE = 0.1


async def publish(host: str, port: int, user: str, password: str) -> None:
    """Run until an error ends the process; Compose then restarts it."""
    async with await aio_pika.connect(host=host, port=port, login=user, password=password) as connection:
        channel = await connection.channel(publisher_confirms=True)
        orders = await channel.get_exchange("orders")
        for number in count(1):
            body = f"order {number}".encode()
            message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await orders.publish(message, "orders.paid")
            await asyncio.sleep(PAUSE)


def main() -> None:
    host, _, port = os.environ["TRAFFIC_BROKER"].rpartition(":")
    password = Path(os.environ["TRAFFIC_PASSWORD_FILE"]).read_text(encoding="utf-8").strip()
    asyncio.run(publish(host, int(port), os.environ["TRAFFIC_USER"], password))


if __name__ == "__main__":
    main()
