# Every target sets up what it needs in .venv. A machine needs Python 3.11 or newer, git and gcc; nothing else.
# A stamp file in .venv says that a step is done, so that the second run of a target starts at once.
# Another torch or Python wants an environment of its own: make test TORCH=torch==2.15.0 VENV=.venv-2.15.0

PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH  ?= torch==2.13.0
MINUTES   ?= 60
PROCESSES ?= 1
VENV      ?= .venv
SUBJECTS  ?= call,leaves
TORCHES   ?= 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
PYTEST := $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 8 --dist loadfile
# A test that hangs, or a crash, says where: after five minutes the stacks of all threads are printed, and the test has failed.
NO_HANG := -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true
# With the accelerator from the start of the process runs what is skipped without it, and of all other files a sixteenth;
# `make test-native` runs all files so.
NEED_IT   = $(shell grep -rlE 'kernels[.]INSTALLED|hooks[.]leaves is None|native[.]accelerator|native import accelerated' tests --include='test_*.py')
SIXTEENTH = $(shell find tests -name 'test_*.py' -not -path '*/more/*' -not -path '*/fuzz/*' | LC_ALL=C sort | awk 'NR % 16 == 6')
NATIVELY  = $(sort $(shell find tests -name 'test_kernels*.py') $(NEED_IT) $(SIXTEENTH))
# What is about threads and processes runs where torch has several threads, too; elsewhere it has one.
THREADED := tests/test_fork.py tests/test_import.py tests/engine/tables/test_of_thread.py tests/subjects/other_threads $(shell find tests -name 'test_*threads*.py')

.PHONY: FORCE help test test-native test-all test-smoke test-device test-torches fuzz demo bench bench-limit bench-kernels bench-steps bench-doors bench-growth bench-sizes bench-memory bench-cost bench-hardware bench-quantized bench-inductor plots docs lint dist clean

help:  ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

test: $(VENV)/.test  ## Run the tests and the doctests, a file at a time on each core (7 to 12 minutes on 2 cores, by the machine); of many cases a sixteenth
	SUBCLASS_AOT_NATIVE=exact OMP_NUM_THREADS=1 $(PYTEST) $(NO_HANG)
	if $(BIN)/python -m subclass_aot build-native; then SUBCLASS_AOT_NATIVE=1 OMP_NUM_THREADS=1 $(PYTEST) $(NO_HANG) $(NATIVELY); fi

test-native: $(VENV)/.test  ## Run those tests with the accelerator
	$(BIN)/python -m subclass_aot build-native
	SUBCLASS_AOT_NATIVE=1 OMP_NUM_THREADS=1 $(PYTEST)

test-all: $(VENV)/.models  ## Run all cases, those that take long too, and try all models of other libraries (a night: inductor compiles thousands of programs)
	OMP_NUM_THREADS=1 $(PYTEST) --all tests subclass_aot tests/models/more
	SUBCLASS_AOT_TEST_THREADS=4 $(PYTEST) --all $(THREADED)

test-torches:  ## Run the tests with every supported torch in turn, each in a .venv-2.15.0 (5 GB) of its own; TORCHES="2.11.0"
	@failed=; for torch in $(TORCHES); do \
		echo "== torch $$torch"; \
		$(MAKE) test TORCH="torch==$$torch" VENV=".venv-$$torch" || failed="$$failed $$torch"; \
	done; test -z "$$failed" || { echo "FAILED with torch:$$failed"; exit 1; }

test-smoke: $(VENV)/.test  ## Try the library in other environments: without numpy, HOME or a compiler, other Pythons and torches; writes docs/environments/
	$(BIN)/python -m tests.smoke

test-device: $(VENV)/.test  ## Run what can run on another device than the CPU there: SUBCLASS_AOT_TEST_DEVICE=cuda
	OMP_NUM_THREADS=1 $(PYTEST) --all tests/test_device.py tests/test_device_claims.py tests/backends/test_cuda_graphs.py tests/databases tests/models/test_inductor.py

fuzz: $(VENV)/.test  ## Look for programs that compile wrong, for an hour; MINUTES=5, SEED=1, PROCESSES=2
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --processes $(PROCESSES) $(if $(SEED),--seed $(SEED))

demo: $(VENV)/.package  ## Train a quantized vision transformer, compare it with eager, show what it costs (under 3 minutes)
	$(BIN)/python -m benchmarks.demo

bench: $(VENV)/.test  ## Measure against torch and hand-written code; writes docs/benchmarks/. Against a commit: BASE=rev SUBJECTS=call,leaves
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks$(if $(BASE),.against $(BASE) --subjects $(SUBJECTS))

bench-limit: $(VENV)/.test  ## Measure the hot path without the accelerator and with it; writes docs/benchmarks/limit.md, int8.md
	SUBCLASS_AOT_NATIVE=0 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --only limit --out build/limit/python
	$(BIN)/python -m subclass_aot build-native
	SUBCLASS_AOT_NATIVE=1 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --only limit --out build/limit/accelerator
	{ echo "### Without the accelerator"; echo; cat build/limit/python/table.md; echo; \
		echo "### With the accelerator"; echo; cat build/limit/accelerator/table.md; } > docs/benchmarks/limit.md
	SUBCLASS_AOT_NATIVE=1 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --only int8 --out build/limit/int8
	cp build/limit/int8/table.md docs/benchmarks/int8.md

# Else the system hands out fresh pages for large tensors, on either side as it happens, which takes longer than the kernels.
KEEP_PAGES := MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_TOP_PAD_=500000000

bench-kernels: $(VENV)/.test  ## Measure training steps on large tensors against eager; writes docs/benchmarks/kernels.md (2 minutes)
	$(KEEP_PAGES) OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --only kernels --out build/kernels
	cp build/kernels/table.md docs/benchmarks/kernels.md

bench-steps: $(VENV)/.test  ## Measure steps and inference of models against eager; writes docs/benchmarks/steps.md (10 minutes)
	$(BIN)/python -m subclass_aot build-native
	mkdir -p build && rm -f build/steps.json
	$(KEEP_PAGES) SUBCLASS_AOT_NATIVE=1 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.steps --keep build/steps.json > build/steps.md
	mv build/steps.md docs/benchmarks/steps.md

bench-doors: $(VENV)/.test  ## Measure torch.compile, joint graphs, files and processes; writes docs/benchmarks/doors.md (15 minutes)
	$(BIN)/python -m subclass_aot build-native
	SUBCLASS_AOT_NATIVE=1 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks \
		--only dynamo --only trace --only files --only "new process" --out build/doors
	{ cat build/doors/table.md; echo; echo "### Bytes on the wire"; echo; echo '```'; \
		$(BIN)/python -m benchmarks.demo --processes 2; echo '```'; } > docs/benchmarks/doors.md

bench-growth: $(VENV)/.test  ## Measure how first calls, second calls and hits grow, beside torch's; writes docs/benchmarks/growth.md (15 minutes)
	mkdir -p build && OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.growth > build/growth.md && mv build/growth.md docs/benchmarks/growth.md

bench-sizes: $(VENV)/.test  ## Measure second calls, with other sizes, beside first ones; writes docs/benchmarks/sizes.md (10 minutes)
	mkdir -p build && SUBCLASS_AOT_NATIVE=0 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.sizes > build/sizes.md && mv build/sizes.md docs/benchmarks/sizes.md

bench-memory: $(VENV)/.test  ## Measure the peak memory of training steps; writes docs/benchmarks/memory.md (10 minutes)
	mkdir -p build && OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.memory > build/memory.md && mv build/memory.md docs/benchmarks/memory.md

bench-cost: $(VENV)/.test  ## Compare what sa.profile says with real steps; writes docs/benchmarks/cost.md (10 minutes)
	mkdir -p build && OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.cost > build/cost.md && mv build/cost.md docs/benchmarks/cost.md

bench-hardware: $(VENV)/.test  ## Compare what sa.profile says with steps on the GPU that is there; writes docs/benchmarks/hardware.md (2 minutes)
	mkdir -p build && $(BIN)/python -m benchmarks.hardware > build/hardware.md && mv build/hardware.md docs/benchmarks/hardware.md

bench-quantized: $(VENV)/.test  ## Measure three models with quantized weights beside dense ones, torchao's and quanto's where they are; writes docs/benchmarks/quantized.md (hours)
	SUBCLASS_AOT_NATIVE=1 OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1 $(BIN)/python -m benchmarks.quantized

bench-inductor: $(VENV)/.test  ## Measure inductor on every model, beside torch.compile; writes docs/benchmarks/inductor.md (hours)
	mkdir -p build && OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1 $(BIN)/python -m benchmarks.inductor > build/inductor.md \
		&& mv build/inductor.md docs/benchmarks/inductor.md

plots: $(VENV)/.test  ## Draw docs/plots/ from the tables of docs/benchmarks/ (seconds)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.plots

docs: $(VENV)/.docs  ## Build the documentation into docs/_build/html
	$(BIN)/python -m tests.error_index
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

lint: $(VENV)/.lint  ## Check style, format and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

dist: $(VENV)/.dist  ## Build the wheel and the source distribution into dist/
	rm -rf dist
	$(BIN)/python -m build

clean:  ## Remove the virtual environments and everything generated
	rm -rf $(VENV) .venv-* build dist docs/_build demo_out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f subclass_aot/native/*.so subclass_aot/native/*.sha256

# torch comes first and alone: with anything beside it, pip may settle on another version of it.
# The stamp holds which torch was asked for, so that another one in an old environment is installed and not passed over.
$(VENV)/.torch: FORCE
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test "$$(cat $@ 2>/dev/null)" = "$(TORCH)" || { $(PIP) install $(TORCH) && echo "$(TORCH)" > $@; }

# Dependency groups need pip 25.1; Python 3.11 brings an older one.
# Without isolation the build sees torch, and makes the extensions.
$(VENV)/.package: $(VENV)/.torch pyproject.toml setup.py $(wildcard subclass_aot/native/*.c subclass_aot/native/accelerator/*)
	$(PIP) install --upgrade "pip>=25.1" "setuptools>=77"
	$(PIP) install --no-build-isolation --editable ".[demo]"
	@touch $@

$(VENV)/.test $(VENV)/.lint $(VENV)/.docs $(VENV)/.dist: $(VENV)/.%: $(VENV)/.package
	$(PIP) install --group $*
	@touch $@

# Some of these packages ask for more than their models need, and for another torch: the second group comes alone.
$(VENV)/.models: $(VENV)/.test
	$(PIP) install --group models-need
	$(PIP) install --no-deps --group models
	@touch $@
