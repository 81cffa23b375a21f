# `make setup` needs a network once, and so does the first `make test`, for what only tests use; then everything works
# without one. A target's stamp keeps a second run from repeating it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(patsubst %/pyproject.toml,%,$(wildcard packages/*/pyproject.toml))
PACKAGE_TESTS := $(PACKAGES:packages/%=test-%)
COMPILE := env -u PIP_FIND_LINKS -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile \
	--quiet --allow-unsafe --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --strip-extras

.PHONY: setup machine test-setup sbom manifests demo picture test test-core $(PACKAGE_TESTS) test-all corpus check lint docs site bench \
	soak soak-maintenance soak-answers soak-guard soak-adopt soak-replay soak-histories soak-decimals \
	soak-examples soak-queries soak-processing soak-standby soak-publish soak-values soak-state soak-reader \
	soak-verify soak-blobs figures prometheus console collector catalogs stores readers pages lock clean

setup: $(VENV)/.jars

# Every time, and before minutes of fetching: what the machine itself must have. No package is there yet.
machine: FOUND = $(if $(wildcard $(VENV)/.created),$(BIN)/python,$(PYTHON))
machine:
	@test -n "$(FOUND)" && "$(FOUND)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
		|| { echo "Frazil needs Python 3.11 to 3.13: install it, or name one with make PYTHON=/path/to/python3.13" >&2; exit 1; }
	@PYTHONPATH=src "$(FOUND)" -m frazil.runtime.java

$(VENV)/.created: | machine
	"$(PYTHON)" -m venv $(VENV)
	touch $@

$(VENV)/.requirements: $(VENV)/.created requirements/runtime.txt
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/runtime.txt
	touch $@

# The core, and the packages beside it.
$(VENV)/.project: $(VENV)/.requirements pyproject.toml $(PACKAGES:%=%/pyproject.toml)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e . $(PACKAGES:%=-e %)
	touch $@

$(VENV)/.jars: $(VENV)/.project src/frazil/runtime/ivy.xml src/frazil/runtime/setup.py
	$(BIN)/frazil setup
	touch $@

# What tests, checks, documents and benchmarks need besides.
$(VENV)/.dev: $(VENV)/.requirements requirements/dev.txt requirements/extras.txt
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/runtime.txt -r requirements/dev.txt \
		-r requirements/extras.txt
	touch $@

# The bill of materials: wheels and jars with their sums and licences, in CycloneDX.
sbom: setup $(VENV)/.dev
	$(BIN)/python -m deploy.sbom dist/frazil.cdx.json

# The plain manifests, from the chart.
manifests: HELM ?= helm
manifests:
	cp deploy/prometheus/frazil.rules.yaml deploy/helm/frazil/files/
	{ echo '# Rendered from deploy/helm/frazil by `make manifests`: edit the chart, or a copy of this file.'; \
		$(HELM) template shop deploy/helm/frazil --namespace shop --values deploy/kubernetes/frazil-values.yaml; } \
		> deploy/kubernetes/frazil.yaml

demo: setup
	$(BIN)/frazil demo

# The README's picture of the demo: a frame of a real run.
picture: setup
	$(BIN)/frazil demo --once --records 60000 --picture docs/images/demo.svg

# Before the tests, whose time is limited; does nothing where all of it is there.
test-setup: setup $(VENV)/.dev
	$(BIN)/python -m tests.fixtures.fetching
	$(BIN)/python -m tests.fixtures.recording

# Three at a time on two cores, as many tests wait for a time-out or an interval: what a file's tests share is theirs alone. The
# order of files is that of tests/tiers.py, not by how many tests they have: the longest have one, and would come last.
# Bytecode is kept even where the environment forbids it: each of the 250 processes that the tests start would compile Frazil.
test test-core $(PACKAGE_TESTS) test-all: export PYTHONDONTWRITEBYTECODE =
test: test-setup
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# The core alone, which is most of the time; and a package beside it, such as `make test-console`.
test-core: test-setup
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder tests

$(PACKAGE_TESTS): test-%: test-setup
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder packages/$*/tests

# Those too that repeat a point in another place or with more parts: an hour. For a release, and for changes that reach far.
test-all soak% catalogs stores: export FRAZIL_READ_OLDER = 1
test-all: test-setup
	$(BIN)/python -m tests.fixtures.stores.programs jars
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not soak"

# Some ten minutes on two cores: what the present code makes of the corpus, beside the answers that tests/corpus keeps. CASES for
# some, such as CASES='json/* canal/log'; FREEZE=1 writes the answers anew; AGAINST for another commit than that of the answers,
# whose rows are shown where they differ.
corpus: setup $(VENV)/.dev
	$(BIN)/python -m tests.corpus $(if $(FREEZE),--freeze) $(if $(AGAINST),--against $(AGAINST)) $(CASES)

lint: setup $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -n 2 src tests conftest.py $(PACKAGES:%=%/src) $(PACKAGES:%=%/tests)
	$(BIN)/lint-imports
	$(BIN)/codespell

check: lint test

# The site of the documents: search, versions, llms.txt. The generator is in an environment of its own, which nothing else needs; a
# link that leads nowhere fails. FRAZIL_REPOSITORY, the address of the source, adds edit links.
build/site-venv/.created: requirements/site.txt
	"$(PYTHON)" -m venv build/site-venv
	build/site-venv/bin/python -m pip install --quiet --require-hashes -r requirements/site.txt
	touch $@

site: setup build/site-venv/.created
	$(BIN)/python -m docs.site build/site-venv/bin/mkdocs

docs: setup $(VENV)/.dev
	$(BIN)/python -m docs.generate
	$(BIN)/python -m tests.unit.decode.json_reference
	$(BIN)/python -m packages.jsonschema.tests.unit.json_schema_reference
	$(BIN)/python -m tests.unit.decode.avro_reference
	$(BIN)/python -m packages.protobuf.tests.unit.protobuf_reference
	$(BIN)/python -m tests.unit.cdc.debezium_reference

bench: setup $(VENV)/.dev
	$(BIN)/python -m bench

# The charts of docs/start/compare.md, measured anew in three quarters of an hour on a machine where nothing else runs.
figures: setup $(VENV)/.dev
	$(BIN)/python -m bench figures --records 4000000 --runs 5 --peer-runs 5 --seconds 7 --peer-seconds 7 --warm-seconds 3 --quiet-wait-s 3 --standby-kills 5
	$(BIN)/python -m bench connect_kill --peer-runs 5
	$(BIN)/python -m docs.charts

# A real Prometheus, where one is installed, scrapes a real run with the shipped rules until they fire: minutes.
prometheus: test-setup
	$(BIN)/python -m pytest -m slow tests/acceptance/test_prometheus.py

# The console in a real Chromium, where one is installed with its driver, and a checker of accessibility that npm installs.
console: test-setup
	$(BIN)/python -m tests.fixtures.browser
	$(BIN)/python -m pytest -m slow packages/console/tests/acceptance/test_console.py

# OpenTelemetry's own collector, where there is Go to build it, takes what a real run sends.
collector: test-setup
	$(BIN)/python -m packages.telemetry.tests.fixtures.collectors
	$(BIN)/python -m pytest -m slow packages/telemetry/tests/acceptance/test_collector.py

# Engines that read what is published: Spark, DuckDB, PyIceberg, and Trino, of which 480 MB are fetched once.
readers: test-setup
	$(BIN)/python -m packages.publish.tests.fixtures.trino
	$(BIN)/python -m pytest -m slow packages/publish/tests/acceptance/test_readers.py

# The pages for notebooks and Dagster, whose programs are fetched into an environment of their own.
pages: test-setup
	$(BIN)/python -m tests.fixtures.page_programs
	$(BIN)/python -m pytest -m slow tests/acceptance/test_page_programs.py

soak: test-setup
	$(BIN)/python -m pytest -m soak

# Every kind of catalog through everything: kills at any step, two processes, maintenance, roll-back, dead letters.
catalogs: test-setup
	$(BIN)/python -m pytest -m "soak or not soak" tests/acceptance/test_catalogs.py

# Every store that packages have a server or an emulator of, through everything. Go and npm make these: what one of them is
# missing for is skipped.
stores: test-setup
	$(BIN)/python -m tests.fixtures.stores.programs
	$(BIN)/python -m pytest -m "slow or not slow" tests/integration/test_signed_store.py tests/integration/test_cloud_identities.py \
		tests/acceptance/test_object_stores.py packages/hdfs/tests/acceptance/test_hdfs.py

# Half an hour of ingestion, maintenance and other writers, killed at random; FRAZIL_SOAK_SECONDS for another time.
soak-maintenance: test-setup
	$(BIN)/python -m pytest -m soak tests/acceptance/test_maintenance_soak.py

# A quarter of an hour on each catalog whose answers to commits are wrong or get lost; FRAZIL_SOAK_SECONDS for another time.
soak-answers: test-setup
	$(BIN)/python -m pytest -s -m soak tests/acceptance/test_unreliable_catalogs.py

# A replay to Kafka that is killed twenty times.
soak-replay: test-setup
	$(BIN)/python -m pytest -m soak packages/replay/tests/acceptance/test_replay.py

# Tables of a million records that change hands, between Kafka Connect or Spark and Frazil, with kills in between.
soak-adopt: test-setup
	$(BIN)/python -m pytest -m soak packages/migrate/tests/acceptance/test_adopt.py

# Eleven faults in every kind of table, each of which `frazil verify` must find, and 200 tables after kills, compaction, new
# columns and roll-backs, in which it must find none. FRAZIL_CLEAN_TABLES, FRAZIL_FIRST_SEED for others.
soak-verify: test-setup
	$(BIN)/python -m pytest -s -m "slow or soak" packages/verify/tests/integration/test_kinds.py

# A million pairs of text and decimal type, in every way from one to the other.
soak-decimals: setup $(VENV)/.dev
	$(BIN)/python -m pytest -m soak tests/unit/decode/test_decimals.py

# Thousands of histories of each kind on the twins in memory: an hour or two. FRAZIL_FIRST_SEED and FRAZIL_HISTORIES for others.
soak-histories: setup $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m soak tests/simulation

# 200 histories of tables that are their own state, each compared with a batch query in Spark; FRAZIL_HISTORIES for others.
soak-state: setup $(VENV)/.dev
	$(BIN)/python -m pytest -s -m soak packages/state/tests/simulation/test_state_oracle.py

# Fifty times as many examples of what is tried by chance, in about an hour; FRAZIL_EXAMPLES for other numbers.
soak-examples: export FRAZIL_EXAMPLES ?= 50
soak-examples: setup $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --timeout 7200 packages/cdc/tests tests/unit/cdc tests/unit/decode tests/unit/rows tests/unit/upsert \
		packages/state/tests/unit

# 2,500 expressions made by chance, in Spark's interpreter and in its generated code; FRAZIL_FIRST_SEED and FRAZIL_QUERIES (of
# 250 expressions) for others.
soak-queries: setup $(VENV)/.dev
	$(BIN)/python -m pytest -m soak tests/integration/test_proven_functions.py tests/integration/test_spark_functions.py

# A pipeline with all that can be done to records before a table, killed 200 times, 50 s each beside other work; FRAZIL_KILLS for
# another number, FRAZIL_FIRST_SEED for other moments.
soak-processing: test-setup
	$(BIN)/python -m pytest -s -m soak tests/acceptance/test_processing.py

# A table without delete files, and a group of two, that are published while their process is killed 200 times, now and then after a
# lost answer or beside a second process; 20 tables with references among them that are published 1,000 times at 10,000 changes a
# second. FRAZIL_KILLS, FRAZIL_PUBLISHES, FRAZIL_RATE, FRAZIL_FIRST_SEED.
soak-publish: test-setup
	$(BIN)/python -m pytest -s -m soak packages/publish/tests/integration

# Two processes that both lead, 200 times, by freezes, cut ways and moved clocks: half an hour. FRAZIL_DOUBLES for another number,
# FRAZIL_FIRST_SEED for another order. And a leader that is killed at every step of a batch, and while the broker is away.
soak-standby: test-setup
	$(BIN)/python -m pytest -s -m soak packages/ha/tests/acceptance/test_standby.py
	$(BIN)/python -m pytest -m soak tests/acceptance/test_kills.py -k standby
	$(BIN)/python -m pytest -m soak packages/ha/tests/contracts/test_leadership.py

# An hour of topics by chance in every format, judged by a model of the documentation: a million records of a format where it is
# the only one. FRAZIL_SOAK_SECONDS for another time, FRAZIL_FORMATS for some formats, FRAZIL_SEED for other topics.
soak-values: setup $(VENV)/.dev
	$(BIN)/python -m pytest -s -m soak tests/simulation/judge

# A quarter of a million damaged records of each format between pages that nobody may touch; FRAZIL_RECORDS for other numbers.
soak-guard: setup $(VENV)/.dev
	$(BIN)/python -m pytest -m soak tests/unit/decode/test_guard_pages.py tests/unit/kafka/fetch/test_guard_pages.py

# An hour of topics by chance, each read in ranges by chance and by librdkafka; FRAZIL_SOAK_SECONDS, FRAZIL_SEED for others.
soak-reader: test-setup
	$(BIN)/python -m pytest -s -m soak tests/integration/kafka_fetch

# A table of pictures, films and point clouds: 300 kills, two processes, packs that are swept and copied; FRAZIL_KILLS for others.
soak-blobs: test-setup
	$(BIN)/python -m pytest -s -m soak packages/blobs/tests/acceptance/test_killed.py

lock: $(VENV)/.dev
	$(COMPILE) --output-file requirements/runtime.txt requirements/runtime.in
	$(COMPILE) --output-file requirements/extras.txt requirements/extras.in
	$(COMPILE) --output-file requirements/dev.txt requirements/dev.in
	$(COMPILE) --output-file requirements/site.txt requirements/site.in
	$(COMPILE) --output-file requirements/pages.txt requirements/pages.in

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find src packages/*/src -name __pycache__ -type d -prune -exec rm -rf {} +
	find src packages/*/src -type d -empty -delete
