"""The command `check`: what is wrong with the brokers of a configuration before its links run. It changes nothing.

`configuration` runs all checks. Each other module judges one subject and yields findings.
"""
