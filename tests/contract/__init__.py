"""A release's wire contract: what the agent relies on that a broker answers, asked on every release that is installed.

Where releases differ, a table at the top of the file has the answers by the first release that gives them.
"""
