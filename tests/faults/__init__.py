"""Every fault that operators have met, on real brokers, with an account of every message.

`make faults` runs all of them; `make test` runs those that are marked as short, with fewer messages.
"""
