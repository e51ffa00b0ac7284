#!/usr/bin/env bash
# Everything that needs a GPU, in one run of under five minutes: tests/gpu, then the benchmarks on the GPU.
# Needs CuPy, NumPy, llvmlite and pytest in PYTHON (default python3); tenferro itself need not be installed.
# Usage: tools/gpu_check.sh [REPORT]; the default report is gpu_report.txt, with the benchmarks as JSON beside it.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

report="${1:-gpu_report.txt}"
python="${PYTHON:-python3}"
"$python" tools/typed_tree.py >/dev/null || exit 1
# The tree of links stands for an installed package; the folder tenferro/ of the root, which is only its top, must not
# come before it: not by pytest's setting either.
export PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/build/typed:$PWD"
exec > >(tee "$report") 2>&1
failed=0
step() {
  local seconds="$1"
  shift
  printf '\n== %s\n' "$*"
  timeout "$seconds" "$@" || { printf '== status %s: %s\n' "$?" "$*"; failed=1; }
}

git log -1 --format='%h %s'
step 20 nvidia-smi
step 160 "$python" -m pytest tests/gpu -q -p no:cacheprovider -o pythonpath="build/typed ." --maxfail=20
step 110 "$python" -m benchmarks --engine cuda --seconds 0.2 --json "${report%.txt}.json"
printf '\n== %s\n' "$([ "$failed" = 0 ] && echo "all of it passed" || echo "something failed")"
exit "$failed"
