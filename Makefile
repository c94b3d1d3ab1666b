# Thin: what a target needs is decided in tools/, which needs nothing but Python and its library.
PYTHON ?= python3
# Handed on by the environment, not by the command line: a path may hold any character.
export MANIFEST DATA_ROOT OUT KEY BUNDLE EMBEDDINGS PROTOCOL TRUST SUBMITTER ARCHIVES TESTS BENCH IMAGES BASE REGISTRY PEER ENGINE_INSTALL

.DEFAULT_GOAL := help
.PHONY: help run test verify reproduce images container leaderboard doctor clean bench lint

define bootstrap
@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
  echo "sealbench: $(PYTHON) is not found; Python 3.11 or newer is needed" >&2; \
  echo "  fix: install it (on Debian or Ubuntu: apt-get install python3 python3-venv), or name one: make PYTHON=python3.12 ..." >&2; \
  exit 22; }
@"$(PYTHON)" -m tools.bootstrap $@
endef

help: ## this list
	@echo 'make run MANIFEST=manifests/quickstart.yaml   set up this machine, run, seal and verify'
	@echo '     [DATA_ROOT=dir] [OUT=dir] [KEY=private.pem] [ENGINE_INSTALL=0: install nothing]'
	@echo 'make verify BUNDLE=dir-or-tar                 check a bundle again; needs no engine'
	@echo '     [PROTOCOL=file-or-id] [TRUST=file] [DATA_ROOT=dir: recompute every score]'
	@echo '     [EMBEDDINGS=20: compute the embeddings of 20 queries again, on an engine]'
	@echo 'make reproduce BUNDLE=dir-or-tar              execute it again, compare, countersign'
	@echo '     [TRUST=file] [SUBMITTER=their.pub.pem] [KEY=private.pem] [OUT=dir]'
	@echo '     [DATA_ROOT=dir] [ARCHIVES=dir: image archives] [PROTOCOL=file-or-id]'
	@echo 'make test [TESTS="tests/unit -k name"]        set up for development and run all tests'
	@echo 'make lint                                     style, types, schemas, shipped manifests'
	@echo 'make bench [BENCH="scoring rows"]             speed against peers, both sides in one run'
	@echo '     [DATA_ROOT=dir: whole runs] [PEER=python: one that has matheel, for plagiarism]'
	@echo 'make images [IMAGES="base lexical"]           build the method images and load them'
	@echo 'make container [BASE=image by digest]          build an image of the runner itself'
	@echo 'make leaderboard [REGISTRY=dir] [OUT=dir]     write the page of the bundles in a registry'
	@echo '     [TRUST=file: whose signatures to check; default: your own key alone]'
	@echo 'make doctor                                   tell what is missing and how to mend it'
	@echo 'make clean [OUT=dir]                          remove containers and folders left by runs'

run test verify reproduce images container leaderboard doctor clean bench lint:
	$(bootstrap)
