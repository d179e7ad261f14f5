"""Whole agents against model brokers, in virtual time: the same seed gives the same run."""
