#!/usr/bin/env bash
# host.sh - a host: a shell that runs a worker under `fence run`, as cron or a person would, and
# writes down how that ended. A process of its own, started by holding.sh:
#
#     host.sh once|loop NAME [OPTION-OF-FENCE-RUN...] -- STEP...
#
# Its events are "wait" (unless it was told not to) and "exit", whose status is the one of
# `fence run`; output= is how many bytes that and its job have printed.
#
# Environment: FENCE_BIN, FENCE_URL, RESOURCE, EVENTS, and what worker.sh needs.
set -uo pipefail

LIB=${BASH_SOURCE[0]%/*}
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$LIB/common.sh"

how=$1 name=$2
shift 2
options=()
while [[ $1 != -- ]]; do
    options+=("$1")
    shift
done
shift
output=$EVENTS.output.$name

run() { # STEP...
    local bytes
    if [[ " ${options[*]} " != *" -n "* ]]; then
        report "$name" wait - -
    fi
    setpriv --pdeathsig KILL "$FENCE_BIN" run --owner "$name" "${options[@]}" "$RESOURCE" \
        -- bash "$LIB/worker.sh" "$name" "$@" >"$output" 2>&1
    status=$?
    bytes=$(wc -c <"$output")
    cat "$output" >&2 # into our log
    report "$name" exit "$status" "output=$bytes"
}

run "$@"
while [[ $how == loop && $status != 6[49] ]]; do # no gateway: no use in going on
    run "$@"
done
