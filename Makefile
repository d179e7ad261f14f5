SHELL := bash
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-all faults simulate lint advisories bench versions image-test compose-test release package-test docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target does; do \
		printf 'make %-12s %s\n' "$$target" "$$does"; done

setup: ## install what is missing: RabbitMQ, Java, Chromium, Node.js, .venv
	@scripts/setup

demo: setup ## two brokers and the agent between them; DEMO_SECONDS=20 stops by itself, MOVE=1 moves from one to the other, STANDBY=1 keeps one in step
	@$(BIN)/python -m tests.lab.demo$(if $(STANDBY),_standby,$(if $(MOVE),_move))

check: setup ## after each change: types, import order and all tests that need no broker
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@scripts/test unit

test: setup ## every behaviour once, on real brokers of this machine; ARGS="-k name" goes to pytest instead
	@scripts/test $(if $(ARGS),only $(ARGS),first)

test-all: setup ## everything: other releases, faults, endurance, Docker; REST=1 leaves out what `make test` runs
	@scripts/test $(if $(REST),rest,all)

faults: setup ## all faults on real brokers, 20,000 messages each; ARGS="-k killed" chooses some
	@FEDERATION_AGENT_FAULTS=all $(BIN)/python -m pytest tests/faults $(ARGS)

simulate: setup ## whole agents in virtual time: SEEDS=100000 runs so many, SEED=123 replays one
	@$(BIN)/python -m tests.simulation $(if $(SEED),--first $(SEED) --seeds 1,--seeds $(or $(SEEDS),1000)) $(ARGS)

lint: setup ## ruff, format, mypy strict, layers, known vulnerabilities of locked packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/audit

advisories: setup ## renew scripts/advisories.json from OSV; needs a network
	$(BIN)/python scripts/audit --renew

bench: setup ## measure throughput and latency
	@$(BIN)/python -m tests.bench $(ARGS)

versions: ## brokers of other releases in var/versions, for the tests marked `versions`
	@scripts/versions

image-test: setup ## build the images without Docker and federate messages with the agent in them
	@scripts/image-test

compose-test: setup ## docker-compose.yml with a real Docker engine, installed where it can be; two minutes
	@scripts/compose-test

release: setup ## wheel, sdist, Debian packages, images, SBOMs and checksums of this commit, in dist
	@scripts/release

package-test: setup ## build the release twice, install its Debian packages in bare Debians and federate with them
	@scripts/package-test

docs: setup ## the documents as a site to search, in var/docs/site; links and anchors are checked
	@scripts/docs

lock: ## resolve requirements.lock and locks/ again, with hashes
	@scripts/lock

clean: ## remove .venv, caches, build output, and what is in var
	@scripts/clean
