"""The name of the queue that remembers a place in a stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.rules.names import stream_offset

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)


def test_it_names_the_shovel_and_the_cluster_that_it_belongs_to() -> None:
    assert stream_offset("/", "copy", "west") == "federation-agent: offset of //copy -> west"


@given(vhost=names, shovel=names, cluster=names)
def test_it_fits_however_long_they_are(vhost: str, shovel: str, cluster: str) -> None:
    name = stream_offset(vhost, shovel, cluster)
    assert len(name.encode()) <= 255
    assert name.startswith("federation-agent: offset ")
    assert name == stream_offset(vhost, shovel, cluster) != stream_offset(vhost, shovel, cluster + "2")
