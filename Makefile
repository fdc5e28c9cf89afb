# Every task of developers and CI: `make demo`, `make test`, `make check`, `make kills`, `make time`, `make faults`, `make bench`.
PYTHON ?= python3
PUBLISHER ?= EFO
SEEDS ?= 5000
FIRST ?= 0
BIN := .venv/bin
RESEARCH := PYTHONPATH=research:tests $(BIN)/python -m
STAMP := .venv/.installed
DEMO := .venvs/demo
FOREIGN := tests/local/foreign
CORE := tests/publishers tests/consumer tests/fetcher tests/local tests/testing
CORE_TOOLS := attrs boto3 cbor2 cryptography h2 hypercorn hypothesis "moto[server]" pydantic pytest pytest-asyncio pytest-timeout rich typer
CONNECTIONS := tests/publishers tests/local tests/plugins/stores tests/plugins/archive
# Folders with tests of a marker, so that a run need not collect all nine thousand; tests/packaging/test_release.py looks for others.
KILLS := tests/groups tests/plugins/runtime tests/plugins/sinks tests/plugins/archive tests/publishers/kinesis_queue_source tests/cli
OF_JOBS := tests/plugins/runtime/supervisor
OUTAGE := research/outage
LONG := kills or sinks or time or simulation or faults or hostile or compare or versions or benchmark
SPARKS := 4.0.2 4.1.1 4.2.1
NOT_COMPILED := '/(tests|pip|setuptools|pygments/lexers|pyspark/(ml|mllib|pandas|testing))/'

# Tests start hundreds of Python processes; without bytecode each compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo leaks minimums test test-spark test-all spark-alone process-jobs computations spark-classes slow slow-spark slow-rest fix lint types imports check kills spark-kills other-kills sinks sinks-soak time outage-pictures simulation nightly nightly-groups nightly-rest faults hostile soak soak-spark soak-spark-faults mutation compare compare-cost compare-truth compare-spark spark-versions peers bench bench-spark report flames rolling-restart scale-out-picture group-requests coverage demo-picture docs distributions installed release pins clean servers service-model aws-check aws-clean

demo: $(DEMO)/.installed  ## a year of flights through Kinesis and Spark, live: PUBLISHER=EFO (default) or POLLING
	$(DEMO)/bin/recordpublisher demo --publisher $(PUBLISHER)

test: $(STAMP)  ## the suite in four minutes: without slow tests, long runs, and with one small Spark job
	$(BIN)/pytest -p no:cacheprovider -n 5 --dist loadfile --no-loadscope-reorder -m "not (slow or servers or $(LONG)) and (sample or not spark)"

test-spark: $(STAMP) servers  ## what needs Spark or foreign servers, and is not slow (six minutes)
	$(BIN)/pytest -p no:cacheprovider -m "((spark and not sample) or servers) and not (slow or $(LONG))"

# Three targets of .ci/run, side by side: one Spark at a time, since it gives a new Python process ten seconds to connect; jobs of processes,
# which mostly wait; and at nice 10 what only computes, for the time that the others leave.
spark-alone: $(STAMP) $(SPARKS:%=.venvs/spark-%/.installed)  ## everything that starts a Spark, one after the other
	+$(MAKE) --no-print-directory test-spark
	+$(MAKE) --no-print-directory spark-versions
	+$(MAKE) --no-print-directory slow-spark
	+$(MAKE) --no-print-directory spark-kills
	+$(MAKE) --no-print-directory demo

process-jobs: $(STAMP)  ## processes that are killed, stopped and cut off, and clients of other makers: other-kills, compare, sinks, time
	+$(MAKE) --no-print-directory other-kills
	+nice -n 5 $(MAKE) --no-print-directory compare
	+nice -n 5 $(MAKE) --no-print-directory sinks
	+nice -n 5 $(MAKE) --no-print-directory time

computations: $(STAMP)  ## the site, the demo's environment, the core with the lowest versions, random schedules and faults, slow tests without Spark
	+nice -n 10 $(MAKE) --no-print-directory docs
	+nice -n 10 $(MAKE) --no-print-directory $(DEMO)/.installed minimums simulation faults
	+$(MAKE) --no-print-directory slow-rest

spark-classes: .venv/spark.jsa  ## stores Spark's classes for the tests that start it (half a minute); for CI, which starts it sixty times

# Java writes the file when it ends, after the tests: "| cat" waits for it.
.venv/spark.jsa: $(STAMP)
	SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -XX:ArchiveClassesAtExit=$(CURDIR)/$@" $(BIN)/pytest -p no:cacheprovider -q -s -k split_and_a_restart tests/plugins/spark/test_data_source.py | cat
	test -f $@

slow: $(STAMP)  ## tests that take seconds each, and all random inputs, in two parts in parallel: tutorials, wheels, a sample Spark job (twenty minutes)
	+$(MAKE) --no-print-directory -j 2 slow-spark slow-rest

slow-spark: $(STAMP)
	$(BIN)/pytest -p no:cacheprovider -m "slow and spark and not ($(LONG))"

slow-rest: $(STAMP)
	RECORDPUBLISHER_ALL_INPUTS=1 nice -n 10 $(BIN)/pytest -p no:cacheprovider -n 2 --dist loadfile -m "(slow or random or hypothesis) and not spark and not ($(LONG))"

sinks: $(STAMP)  ## jobs write to PostgreSQL, to files, and to tables on a faulty S3 server while processes are killed (five minutes)
	RECORDPUBLISHER_ROUNDS=1000 RECORDPUBLISHER_SECONDS=110 $(BIN)/pytest -m sinks -s $(OF_JOBS)

sinks-soak: $(STAMP)  ## the same, 60 rounds (ten minutes)
	RECORDPUBLISHER_ROUNDS=60 $(BIN)/pytest -m sinks -s $(OF_JOBS)

leaks: $(STAMP)  ## tests of connections, each of which fails if it leaves one open (about eight minutes)
	RECORDPUBLISHER_LEAKS=1 $(BIN)/pytest -p no:cacheprovider -m "not (slow or $(LONG) or spark or servers)" $(CONNECTIONS)

simulation: $(STAMP)  ## random schedules on virtual time: SCHEDULES=2000 of them, from number FIRST; SEED=123 runs one again
	$(BIN)/pytest -q -m simulation tests/simulation/test_simulation.py
	$(BIN)/pytest -q -m simulation tests/simulation/elastic
	$(BIN)/pytest -q -m simulation tests/simulation/alone tests/simulation/workers
	$(BIN)/pytest -q -m simulation tests/plugins/archive

nightly: $(STAMP)  ## a hundred thousand of them, of MapSink and of worker groups, in two parts in parallel; a line for each 5,000 (two to seven hours)
	+$(MAKE) --no-print-directory -j 2 nightly-groups nightly-rest

nightly-groups: $(STAMP)
	GROUP_SCHEDULES=100000 $(BIN)/pytest -p no:cacheprovider -q -s -m simulation tests/simulation/elastic

nightly-rest: $(STAMP)
	SCHEDULES=100000 $(BIN)/pytest -p no:cacheprovider -q -s -m simulation tests/simulation/test_simulation.py
	MAP_SCHEDULES=100000 MAP_GROUP_SCHEDULES=5000 $(BIN)/pytest -p no:cacheprovider -q tests/plugins/sinks/map/test_schedules.py

kills: $(STAMP)  ## tests that kill real processes, in two parts side by side (sixteen minutes)
	+$(MAKE) --no-print-directory -j 2 spark-kills other-kills

spark-kills: $(STAMP)  ## drivers, executors and tasks of Spark, then the demo's job
	$(BIN)/pytest -p no:cacheprovider -m "kills and spark" tests/plugins/spark tests/demo

other-kills: $(STAMP)  ## jobs without Spark, three at a time, since they mostly wait; nice: Spark gives a new Python process ten seconds to connect
	nice -n 5 $(BIN)/pytest -p no:cacheprovider -n 3 --dist load -m "kills and not spark" $(KILLS)

time: $(STAMP)  ## replays the outage with real processes (two minutes)
	$(BIN)/pytest -m time $(OUTAGE)

outage-pictures: $(STAMP)  ## replays the outage and draws the pictures of docs/explanation/watermarks.md
	$(RESEARCH) outage.replay --pictures docs/images

faults: $(STAMP)  ## random faults, reshards and restarts: 600 seeds in memory, 24 over sockets; prints the faults (five minutes)
	$(BIN)/pytest -m faults -s research/soak tests/fetcher/pipeline

hostile: $(STAMP)  ## a million hostile records, each read, skipped or a dead letter: RECORDS=1000000, and ANSWERS=50000 of servers to each kind of call (half an hour)
	$(BIN)/pytest -q -s -m hostile tests/hostile

soak: $(STAMP)  ## random faults for as many seeds as you like: make soak SEEDS=50000 FIRST=600
	$(RESEARCH) soak.sweep --seeds $(SEEDS) --first $(FIRST)

mutation: $(STAMP)  ## removes each recovery rule in turn and reports how many seeds the soak needs to fail (minutes)
	$(RESEARCH) soak.mutation_testing --seeds 600

soak-spark: $(STAMP)  ## many more kills of Spark jobs: KILL_ROUNDS=24 a job (half an hour)
	KILL_ROUNDS=$${KILL_ROUNDS:-24} $(BIN)/pytest -s -m "kills and spark" tests/plugins/spark tests/demo

soak-spark-faults: $(STAMP)  ## kills, outages, reshards and a slow sink at once, BATCH with claims in an S3 server; needs Go: SOAK_SECONDS=3600 SOAK_KILLS=36 (an hour and some minutes)
	SOAK_SECONDS=$${SOAK_SECONDS:-3600} $(BIN)/pytest -s tests/plugins/spark/jobs/test_an_hour_of_faults.py

fix: $(STAMP)  ## mends what the linter can mend, and formats
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/mypy --config-file research/mypy.ini research docs

imports: $(STAMP)
	$(BIN)/lint-imports

check: lint types imports

minimums: .venvs/minimums/.installed  ## the core's tests with the lowest versions that pyproject.toml allows
	.venvs/minimums/bin/python -m pytest -q -p no:cacheprovider -m "not ($(LONG) or spark or servers)" $(CORE)

NEWEST := newest-3.11 newest-3.12 newest-3.13 newest-3.14

test-all: test test-spark minimums $(NEWEST)  ## the suite, and the core's tests with the oldest and the newest dependencies on each Python there is

# A shim of pyenv runs only the versions that PYENV_VERSION names.
PYENV_VERSIONS = $$(pyenv versions --bare 2>/dev/null | paste -sd: -)

newest-%: $(STAMP)  ## the core's tests with the newest dependencies on a Python: make newest-3.13
	@python=$$(PYENV_VERSION=$(PYENV_VERSIONS) $(BIN)/uv python find --no-python-downloads $* 2>/dev/null); \
	if test -z "$$python"; then echo "Python $* is missing: its tests are skipped"; test "$(CI)" != true; exit; fi; \
	set -e; echo "Python $*: $$python"; \
	$(BIN)/uv venv --quiet --clear --python $$python .venvs/newest-$*; \
	$(BIN)/uv pip install --quiet --python .venvs/newest-$*/bin/python -e . $(CORE_TOOLS); \
	.venvs/newest-$*/bin/python -m pytest -q -p no:cacheprovider -m "not (slow or $(LONG) or spark or servers)" $(CORE)

compare: $(STAMP)  ## AWS SDKs for Java, JavaScript and Go, the KCL, the KPL and Flink's connector on the embedded endpoint; groups on DynamoDB Local and versitygw; needs Maven, npm, Go (eleven minutes)
	$(BIN)/pytest -p no:cacheprovider -m compare research/compare tests/groups tests/plugins/stores

STORE ?= postgresql

rolling-restart: $(STAMP)  ## restarts ten workers of a group one by one, and prints for how long shards had no reader: STORE=postgresql, folder, sqlite, dynamodb or s3
	PYTHONPATH=tests $(BIN)/python -m groups.scaling.rolling_restart --store $(STORE)

scale-out-picture: $(STAMP)  ## from one worker to eight and back under load; draws the picture of docs/operate/share-shards-between-processes.md (two minutes)
	PYTHONPATH=tests $(BIN)/python -m groups.scaling.scale_out --store $(STORE) --picture docs/images/scale-out.png

group-requests: $(STAMP)  ## what a group and workers of the KCL cost in DynamoDB, at rest and under load, counted; needs Maven (nine minutes)
	$(RESEARCH) compare.group_requests

compare-cost: $(STAMP) peers  ## CPU, memory and latency of every client, tables in research/compare/README.md and docs/explanation/performance.md: CLIENTS="KCL,kcl-rs" SIZES=200; those in other languages need Maven, npm, Go (forty minutes)
	$(RESEARCH) compare.cost --readers "$(CLIENTS)" --sizes "$(SIZES)"

compare-truth: $(STAMP) .venvs/truth/.installed .venvs/spark-3/.installed  ## one schedule of reshards, throttling, lost answers and a kill, played to several clients; the table of docs/explanation/comparison.md; needs Maven, Java 17 (25 minutes)
	$(RESEARCH) compare.truth $(CLIENTS)

compare-spark: $(STAMP) .venvs/spark-3/.installed  ## this project's Spark source, qubole's connector, and awslabs' if AWSLABS_JAR is its file: rows a second, CPU a row, small batches, kills; a table of docs/explanation/comparison.md; needs Maven, Java 17 (fifteen minutes)
	$(RESEARCH) compare.spark $(CLIENTS)
	$(RESEARCH) compare.spark.layers $(CLIENTS)

spark-versions: $(STAMP) $(SPARKS:%=.venvs/spark-%/.installed)  ## older versions of PySpark, those of EMR 8, Glue 6 and Databricks 19: a short job, kills, reshards
	$(BIN)/pytest -p no:cacheprovider -m versions tests/plugins/spark

peers: .venvs/peers/.installed  ## other clients, for benchmarks

bench: $(STAMP) peers  ## prints every figure with its goal, then writes the tables and the picture of research/benchmarks/README.md (twenty minutes)
	-RECORDPUBLISHER_KEEP=1 $(BIN)/python -m pytest -m "benchmark and not spark" -s -v research/benchmarks
	$(RESEARCH) benchmarks.figures.report

bench-spark: $(STAMP)  ## measures a real Spark; the figures are only printed (minutes)
	SPARK_SUBMIT_OPTS= $(BIN)/python -m pytest -m "benchmark and spark" -s -v research/benchmarks

report: $(STAMP)  ## writes the same tables and picture from the figures in research/benchmarks/results.json
	$(RESEARCH) benchmarks.figures.report

flames: $(STAMP)  ## a flame graph for each path and the shares of layers (two minutes)
	$(RESEARCH) benchmarks.flames.draw
	$(RESEARCH) benchmarks.figures.report

demo-picture: $(STAMP)  ## runs the demo and draws docs/images/demo.svg (two minutes)
	$(BIN)/python docs/draw_demo.py

coverage: $(STAMP)
	$(BIN)/pytest -m "not ($(LONG) or spark)" --cov --cov-report=term

# A job may run in .venv: what `make test` has made there is used as it is; an environment that a user has made is left alone.
DOCS_BIN := $(if $(wildcard $(STAMP)),$(BIN),.venvs/docs/bin)

docs: $(if $(wildcard $(STAMP)),,.venvs/docs/.installed)  ## the reference pages and the data-flow diagram, made from the code, and the site
	$(DOCS_BIN)/python docs/generate_settings.py
	$(DOCS_BIN)/python docs/generate_reference.py
	$(DOCS_BIN)/python docs/draw_data_flow.py
	$(DOCS_BIN)/python docs/stage_site.py
	$(DOCS_BIN)/zensical build --strict --clean --config-file build/zensical.toml
	@echo "The site is in build/site: open build/site/index.html"

.venvs/docs/.installed: pyproject.toml constraints.txt
	test -x .venvs/docs/bin/python || $(PYTHON) -m venv .venvs/docs
	.venvs/docs/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	.venvs/docs/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e ".[dev]"
	touch $@

distributions: $(STAMP)  ## the sdist and the wheel in dist/, checked as the package index does
	rm -rf build dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

installed: distributions  ## the quick starts of each role, where only the wheel is installed (two minutes)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venvs/wheel
	$(BIN)/uv pip install --quiet --python .venvs/wheel/bin/python -c constraints.txt "$$(echo dist/*.whl)[spark,cli,sql,parquet,pytest]" pip setuptools wheel hypothesis pytest-asyncio pytest-timeout
	.venvs/wheel/bin/pytest -p no:cacheprovider tests/docs/test_quick_starts.py

release: $(STAMP)  ## everything that must be right before a release; it uploads nothing
	$(BIN)/python .ci/release_checks.py
	.ci/run
	$(MAKE) --no-print-directory $(NEWEST) docs
	git diff --exit-code
	$(MAKE) --no-print-directory installed
	@echo "Ready. To publish: git tag v$$($(BIN)/python -c 'from importlib.metadata import version; print(version("recordpublisher"))'), and push the tag."

# exact versions: aiobotocore allows few versions of botocore, and without pins pip could try many for minutes
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recordpublisher needs Python 3.11 or newer; set PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -c constraints.txt -e ".[dev]"
	touch $@

# Without development tools, tests of packages, and the jars of Spark Connect's Scala shell. Bytecode is made on all cores;
# without it Spark's first Python process may take more than its ten seconds.
$(DEMO)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "recordpublisher needs Python 3.11 or newer; set PYTHON=...")'
	@$(PYTHON) .ci/before_demo.py $(DEMO)
	test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel
	DIST_EXTRA_CONFIG=$(CURDIR)/.ci/stored_wheels.cfg $(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-build-isolation -c constraints.txt -e ".[demo]"
	cd $(DEMO)/lib/python3*/site-packages && rm -rf pyspark/jars/connect-repl pandas/tests pyarrow/tests
	-$(DEMO)/bin/python -m compileall -q -j 0 -x $(NOT_COMPILED) $(DEMO)/lib src > /dev/null
	touch $@

servers: $(FOREIGN)/node_modules/.installed .venvs/ministack/.installed .venvs/sdk/.installed  ## other local Kinesis servers, which the embedded endpoint is compared with; today's boto3; pyright

$(FOREIGN)/node_modules/.installed: $(FOREIGN)/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing (Node.js 20 or newer): tests against kinesis-local are skipped"; test "$(CI)" != true; }
	! command -v npm >/dev/null || { cd $(FOREIGN) && npm ci --no-audit --no-fund --silent && touch node_modules/.installed; }

.venvs/ministack/.installed: $(FOREIGN)/ministack-constraints.txt
	test -x .venvs/ministack/bin/python || $(PYTHON) -m venv .venvs/ministack
	.venvs/ministack/bin/python -m pip install --quiet --disable-pip-version-check -c $< ministack
	touch $@

.venvs/sdk/.installed: $(FOREIGN)/sdk-constraints.txt
	test -x .venvs/sdk/bin/python || $(PYTHON) -m venv .venvs/sdk
	.venvs/sdk/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

AWS_CHECK = --prefix "$(or $(PREFIX),$(error PREFIX is the begin of the names that are made))" --region "$(or $(REGION),$(error REGION=eu-west-1))" $(if $(PROFILE),--profile "$(PROFILE)")

aws-check: $(STAMP) .venvs/sdk/.installed  ## asks a real account what the endpoint is asked, and prints where they differ; says the price first: PROFILE=p PREFIX=check REGION=eu-west-1
	$(RESEARCH) aws_check $(AWS_CHECK)

aws-clean: .venvs/sdk/.installed  ## deletes what a killed aws-check has left, past its hour; ALL=--all: at once
	.venvs/sdk/bin/python research/aws_check/observe.py clean $(AWS_CHECK) $(ALL)

service-model:  ## what the newest botocore adds to the API's model that the embedded endpoint was made from, or changes in it; WRITE=--write takes it over
	test -x .venvs/newest-sdk/bin/python || $(PYTHON) -m venv .venvs/newest-sdk
	.venvs/newest-sdk/bin/python -m pip install --quiet --disable-pip-version-check --upgrade botocore
	.venvs/newest-sdk/bin/python tests/servers/sdk/service_model.py $(WRITE)

.venvs/minimums/.installed: pyproject.toml $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venvs/minimums
	$(BIN)/uv pip install --quiet --python .venvs/minimums/bin/python --resolution lowest-direct -e .
	$(BIN)/uv pip freeze --quiet --python .venvs/minimums/bin/python --exclude-editable > .venvs/minimums/lowest.txt
	$(BIN)/uv pip install --quiet --python .venvs/minimums/bin/python -c .venvs/minimums/lowest.txt $(CORE_TOOLS)
	touch $@

.venvs/truth/.installed: research/compare/truth/constraints.txt
	test -x .venvs/truth/bin/python || $(PYTHON) -m venv .venvs/truth
	.venvs/truth/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

$(SPARKS:%=.venvs/spark-%/.installed): .venvs/spark-%/.installed: pyproject.toml constraints.txt $(STAMP)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
	grep -v -E '^(pyspark|py4j)==' constraints.txt > $(@D)/constraints.txt
	nice -n 10 $(BIN)/pip --python $(@D)/bin/python install --quiet --no-compile -c $(@D)/constraints.txt -e ".[spark]" pyspark==$*  # uv would store PySpark, which it builds, anew each time: 1.8 GB
	rm -f $(@D)/lib/python3*/site-packages/pyspark/python/lib/*.zip  # each process would compile PySpark anew
	-nice -n 10 $(@D)/bin/python -m compileall -q -j 0 -x $(NOT_COMPILED) $(@D)/lib src > /dev/null
	touch $@

.venvs/spark-3/.installed: research/compare/spark/constraints.txt
	test -x .venvs/spark-3/bin/python || $(PYTHON) -m venv .venvs/spark-3
	.venvs/spark-3/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

.venvs/peers/.installed: research/benchmarks/peers/constraints.txt
	test -x .venvs/peers/bin/python || $(PYTHON) -m venv .venvs/peers
	.venvs/peers/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

pins: $(STAMP)
	(head -1 constraints.txt; $(BIN)/pip freeze --all | grep -v -E '^(pip|recordpublisher|-e)') > constraints.new
	mv constraints.new constraints.txt

clean:
	rm -rf .venv .venvs $(FOREIGN)/node_modules build dist .demo
