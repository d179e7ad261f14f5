"""`make bench`: what is fast enough, and what is not; never part of the tests."""
