"""Links that federate queues: messages move to where their consumers are."""
