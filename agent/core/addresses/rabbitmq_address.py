"""Addresses of AMQP 1.0 as RabbitMQ writes them. Other brokers have names of their own kind, which stay as they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from agent.core.addresses.url_text import decode, encode
from agent.errors import UriError

_SINCE_4_0: Final = re.compile(r"/(queue|exchange)s/([^/]+)(?:/([^/]*))?")
_BEFORE: Final = re.compile(r"/(?:amq/)?(queue)/([^/]+)|/(exchange)/([^/]+)(?:/([^/]+))?|/(topic)/([^/]+)|([^/]+)")


@dataclass(frozen=True, slots=True)
class AddressedObject:
    """The queue or exchange that an address names; `key` is a routing key. `is_old`: in the form before 4.0. Such a
    release declares the queue if it `is_declared`."""

    kind: Literal["queue", "exchange"]
    name: str
    key: str | None = None
    is_old: bool = False
    is_declared: bool = False


def addressed(address: str) -> AddressedObject | None:
    """The object that RabbitMQ finds at the address; None if that is none with a name."""
    if found := _SINCE_4_0.fullmatch(address):
        kind, name, key = found.groups()
        if kind == "queue" and key is not None:
            return None
        try:
            decoded = decode(name), None if key is None else decode(key)
        except UriError:
            return None
        return AddressedObject("queue" if kind == "queue" else "exchange", *decoded)
    if found := _BEFORE.fullmatch(address):
        queue, exchange, key, topic, bare = (found[group] for group in (2, 4, 5, 7, 8))
        if name := queue or bare:
            return AddressedObject("queue", _slashed(name), is_old=True, is_declared=not address.startswith("/amq/"))
        name, key = ("amq.topic", topic) if topic else (exchange, key)
        return AddressedObject("exchange", _slashed(name), None if key is None else _slashed(key), is_old=True)
    return None


def _slashed(name: str) -> str:
    """The old form encodes a slash, and nothing else."""
    return name.replace("%2F", "/")


def node_at(address: str) -> tuple[str, str]:
    """The kind and the name of the node that an address is in a topology: the object that RabbitMQ finds there, or a
    node of its own."""
    found = addressed(address)
    return ("address", address) if found is None else (found.kind, found.name)


def in_other_form(address: str, *, is_source: bool, since_4_0: bool) -> str | None:
    """The address as a release of RabbitMQ takes it, if it is in the form of other releases. None for an exchange as a
    source: releases from 4.0 on have no such address, and before each connection leaves a queue behind."""
    found = addressed(address)
    if found is None or found.is_old is not since_4_0 or (is_source and found.kind == "exchange"):
        return None
    if since_4_0:
        parts = (f"/{found.kind}s", *map(encode, [found.name, *([] if found.key is None else [found.key])]))
    else:
        before = "/amq/queue" if found.kind == "queue" else "/exchange"
        parts = (before, *(each.replace("/", "%2F") for each in (found.name, found.key or "") if each))
    return "/".join(parts)
