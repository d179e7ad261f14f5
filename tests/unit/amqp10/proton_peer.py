"""Another client's codec: proton, run by the Python that Debian installs it for. A request and an answer a line.

A value is [type, plain]: bytes are hexadecimal, floats as `float.hex` writes them, a map is a list of keys and values
by turns, an array is [descriptor or null, type, items].
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from typing import Any

from proton import Condition, Connection, Data, Message, Transport  # type: ignore[import-not-found]

TYPES = {**{name: code for code, name in Data.type_names.items()}, "boolean": Data.BOOL}
NAMES = {code: "boolean" if name == "bool" else name for code, name in Data.type_names.items()}
METHODS = {"boolean": "bool"}


def get(data: Data, kind: int) -> list[Any]:
    name = NAMES[kind]
    if name == "null":
        return [name, None]
    if name in {"described", "list", "map"}:
        return [name, children(data)]
    if name == "array":
        _, is_described, item_type = data.get_array()
        items = children(data)
        return [name, [items.pop(0) if is_described else None, NAMES[item_type], items]]
    return [name, written(name, getattr(data, f"get_{METHODS.get(name, name)}")())]


def written(name: str, plain: Any) -> Any:
    match name:
        case "float" | "double":
            return float(plain).hex()
        case "decimal32" | "decimal64":
            return int(plain).to_bytes(4 if name == "decimal32" else 8, "big").hex()
        case "binary" | "decimal128":
            return bytes(plain).hex()
        case "uuid":
            return plain.bytes.hex()
        case "char":
            return ord(plain)
        case "string" | "symbol":
            return str(plain)
        case _:
            return bool(plain) if name == "boolean" else int(plain)


def children(data: Data) -> list[Any]:
    found = []
    data.enter()
    while (kind := data.next()) is not None:
        found.append(get(data, kind))
    data.exit()
    return found


def put(data: Data, value: list[Any]) -> None:
    name, plain = value
    if name == "null":
        data.put_null()
    elif name in {"described", "list", "map"}:
        getattr(data, f"put_{name}")()
        put_children(data, plain)
    elif name == "array":
        descriptor, item_type, items = plain
        data.put_array(descriptor is not None, TYPES[item_type])
        put_children(data, items if descriptor is None else [descriptor, *items])
    else:
        getattr(data, f"put_{METHODS.get(name, name)}")(natural(name, plain))


def put_children(data: Data, values: list[Any]) -> None:
    data.enter()
    for each in values:
        put(data, each)
    data.exit()


def natural(name: str, plain: Any) -> Any:
    if name in {"float", "double"}:
        return float.fromhex(plain)
    if name in {"decimal32", "decimal64"}:
        return int(plain, 16)
    if name in {"binary", "decimal128"}:
        return bytes.fromhex(plain)
    if name == "uuid":
        return uuid.UUID(hex=plain)
    return chr(plain) if name == "char" else plain


def decoded(raw: bytes) -> list[Any]:
    data, values = Data(), []
    while raw:
        raw = raw[data.decode(raw) :]
    data.rewind()
    while (kind := data.next()) is not None:
        values.append(get(data, kind))
    return values


def encoded(value: list[Any]) -> str:
    data = Data()
    put(data, value)
    return bytes(data.encode()).hex()


def message_written(fields: dict[str, Any], inferred: bool) -> str:
    message = Message()
    for name, value in fields.items():
        setattr(message, name, plain_of(value))
    message.inferred = inferred
    return bytes(message.encode()).hex()


def plain_of(value: Any) -> Any:
    """A value in the type that proton has for it; what isn't [type, plain] stays as it is."""
    if not isinstance(value, list):
        return {name: plain_of(each) for name, each in value.items()} if isinstance(value, dict) else value
    data = Data()
    put(data, value)
    data.rewind()
    data.next()
    return data.get_object()


def message_read(raw: str, names: list[str]) -> dict[str, Any]:
    message = Message()
    message.decode(bytes.fromhex(raw))
    return {name: repr(getattr(message, name)) for name in names}


def conversation(first: str, second: str, payload: str) -> dict[str, Any]:
    """A client that opens a link, sends a message as soon as it may, and closes after the peer."""
    connection, transport = Connection(), Transport()
    connection.container = "proton"
    connection.hostname = "example"
    connection.properties = {"product": "proton"}
    transport.bind(connection)
    connection.open()
    session = connection.session()
    session.open()
    link = session.sender("link")
    link.source.address, link.target.address = "here", "/queues/orders"
    link.open()
    output = exchanged(transport, "") + exchanged(transport, first)
    seen = {
        "container": connection.remote_container,
        "properties": repr(connection.remote_properties),
        "max_frame_size": transport.remote_max_frame_size,
        "credit": link.credit,
        "source": link.remote_source.address,
        "filter": link.remote_source.filter.format(),
        "target": link.remote_target.address,
    }
    delivery = link.delivery("tag")
    link.send(bytes.fromhex(payload))
    link.advance()
    output += exchanged(transport, "")
    output += exchanged(transport, second)
    seen |= {
        "state": delivery.remote_state.name,
        "settled": delivery.settled,
        "link": repr(link.remote_condition),
        "closed": repr(connection.remote_condition),
    }
    delivery.settle()
    link.close()
    session.close()
    connection.condition = Condition("amqp:internal-error", "it is over")
    connection.close()
    output += exchanged(transport, "")
    return {"output": output.hex(), "seen": seen}


def exchanged(transport: Transport, received: str) -> bytes:
    raw, sent = bytes.fromhex(received), b""
    while True:
        while (pending := transport.pending()) > 0:
            sent += transport.peek(pending)
            transport.pop(pending)
        if not raw:
            return sent
        size = transport.capacity()
        transport.push(raw[:size])
        raw = raw[size:]


ANSWERS: dict[str, Callable[..., Any]] = {
    "decode": lambda raw: decoded(bytes.fromhex(raw)),
    "encode": encoded,
    "write": message_written,
    "read": message_read,
    "talk": conversation,
}
for line in sys.stdin:
    try:
        name, *arguments = json.loads(line)
        result = {"answer": ANSWERS[name](*arguments)}
    except Exception as error:  # noqa: BLE001 -- the other side fails its test
        result = {"error": repr(error)}
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
