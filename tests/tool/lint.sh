#!/usr/bin/env bash
# `make lint` finds nothing. Its programs are there where `make lint` has run, and in continuous integration.
. "$(dirname "$0")/../lib.sh"

git -C "$ROOT" rev-parse 2>/dev/null || skip 'this is no clone: what is in the tree is unknown'
for program in clang-format clang-tidy cppcheck shellcheck mandoc "$ROOT/.venv/bin/ruff" "$ROOT/.venv/bin/codespell" \
	"${MYPY:-$ROOT/.venv/bin/mypy}"; do
	command -v "$program" >/dev/null || skip "there is no ${program##*/}: make lint installs it"
done
"$ROOT/scripts/lint" || bad 'it finds the above'
