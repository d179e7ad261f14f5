"""Every fault that operators have met, on real brokers, with an account of every message.

`make test` shows the account with one of them, `make test-all` with all, and `make faults` with more messages.
"""
