"""The tree of the agent's errors. A message says what, where, why and what to do, and never holds a secret.

    AgentError
    ├── ConfigurationError      a document is wrong; holds every problem found, with its place
    ├── UriError                an AMQP URI can't be understood
    ├── BrokerError             a broker said no, or said nothing
    │   ├── TransientError      the same again may work: retry
    │   └── PermanentError      the same again won't work: something has to be changed first
    └── CannotStartError        a port is taken, a directory can't be written
"""

from __future__ import annotations


class AgentError(Exception):
    """Anything the agent reports on purpose."""


class UriError(AgentError):
    """An AMQP URI can't be understood; the message never quotes it."""


class BrokerError(AgentError):
    """A broker said no, or said nothing."""


class TransientError(BrokerError):
    """The same again may work."""


class PermanentError(BrokerError):
    """The same again won't work; something has to be changed first."""


class CannotStartError(AgentError):
    """The process can't do its work here: a port is taken, a directory can't be written."""
