#!/usr/bin/env bash
# Runs the tests with the kernels of other processors, and tells for each of these what failed.
#
#   tests/processors.sh [--resume] [numbers|whole] [CONFIGURATION …]
#
# numbers: the tests marked `numbers`, in 24 configurations, and two with MKL's kernels for processors that are not Intel's (the
# default). whole: all tests, in four.
# A configuration is ATEN_CPU_CAPABILITY/ONEDNN_MAX_CPU_ISA/threads, for example default/SSE41/1 or unset/unset/2. MKL's kernels
# may follow: unset/unset/1/COMPATIBLE.
# With --resume, configurations whose results are kept in runs/processors are not run again.
set -uo pipefail
cd "$(dirname "$0")/.."

resume=false tests=numbers
if [ "${1:-}" = --resume ]; then resume=true; shift; fi
case "${1:-}" in numbers | whole) tests=$1; shift ;; esac
if [ $# -gt 0 ]; then
    configurations=("$@")
elif [ "$tests" = numbers ]; then
    configurations=({unset,avx2,default}/{unset,AVX512_CORE,AVX2,SSE41}/{1,2} unset/unset/{1,2}/COMPATIBLE)
else
    configurations=(unset/unset/1 unset/unset/2 default/SSE41/1 avx2/AVX2/1)
fi
for configuration in "${configurations[@]}"; do
    if [[ ! $configuration =~ ^(unset|avx2|default)/(unset|AVX512_CORE|AVX2|SSE41)/[1-9](/COMPATIBLE)?$ ]]; then
        echo "the configuration $configuration is none of unset|avx2|default/unset|AVX512_CORE|AVX2|SSE41/threads[/COMPATIBLE]" >&2
        exit 2
    fi
done
case $tests in numbers) mark=numbers ;; whole) mark='not alone' ;; esac
kept=runs/processors
mkdir -p "$kept"

run() { # one configuration, whose output goes to a file
    local aten isa threads mkl
    IFS=/ read -r aten isa threads mkl <<<"$1"
    (
        # Without caches, every process would compile all modules.
        unset ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA MKL_CBWR PYTHONDONTWRITEBYTECODE
        [ "$aten" = unset ] || export ATEN_CPU_CAPABILITY=$aten
        [ "$isa" = unset ] || export ONEDNN_MAX_CPU_ISA=$isa
        [ -z "$mkl" ] || export MKL_CBWR=$mkl
        # Threads that wait actively take the cores from those that compute.
        export OMP_NUM_THREADS=$threads OMP_WAIT_POLICY=passive
        exec "${PYTHON:-.venv/bin/python}" -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m "$mark"
    ) >"$2" 2>&1
}

status=0 table=
for configuration in "${configurations[@]}"; do
    file=$kept/$tests-${configuration//\//-}.txt
    if ! $resume || ! tail -n 1 "$file" 2>/dev/null | grep -q 'passed'; then
        run "$configuration" "$file"
    fi
    counts=$(tail -n 1 "$file")
    printf '%-26s %s\n' "$configuration" "$counts"
    failures=$(grep -oE '^(FAILED|ERROR) [^ ]+' "$file" | cut -d' ' -f2 | sort -u)
    [[ $counts == *passed* && -z $failures ]] || status=1
    table+=$(printf '%-26s %s' "$configuration" "$counts"; for each in $failures; do printf '\n    %s' "$each"; done)$'\n'
done
printf '\n%s' "$table"
exit $status
