#!/usr/bin/env bash
# worker.sh - a worker that wants to charge an invoice. A process of its own, started by
# scenario.sh. It does the steps given as arguments, one after the other:
#
#     worker.sh A acquire=1 work=0.7 put release
#
#     acquire=TTL            ask the gateway for the lease, once; TTL in seconds
#     acquire_retrying=TTL   ask until it is granted
#     renew                  renew the lease, once
#     renew_retrying         renew until the gateway can (it answers 503 while Redis is away)
#     keep_renewing=SECONDS  renew at this interval for ever, as a watchdog does (STEP=1 or not)
#     release                release the lease
#     charge                 insert a row into a plain SQLite table: nobody checks anything
#     put                    write the charge through the gateway, with the fencing token
#     work=SECONDS           the real work: here it just takes time
#     after=ACTOR:WHAT       the work lasts until that event: see below
#     token=N                do not acquire: use token N
#
# A worker knows nothing of the others and believes that it holds what it was granted. `after` is
# the one exception: it makes a slow machine tell the same story as a fast one, where a fixed time
# would not. It only delays; no step looks at what the others did.
#
# Every answer becomes a line in $EVENTS (common.sh). With STEP=1 the worker shows each command
# and waits until it may go on.
#
# Environment: FENCE_URL, RESOURCE, EVENTS, TABLE (the SQLite file), STEP.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=common.sh
source "${BASH_SOURCE[0]%/*}/common.sh"

name=$1
shift

token=    # the fencing token of our lease
lease_id= # the secret that renews and releases it
gates=0   # commands shown so far, by every worker of this name (STEP=1)

# The answer to the last request.
status=
headers=
body=
sent_us=

# A command as one could type it. No word of ours has both kinds of quotes.
as_typed() { # WORD...
    local word text=
    for word; do
        if [[ $word == *\'* ]]; then
            word="\"$word\""
        elif [[ ! $word =~ ^[A-Za-z0-9_./:=-]+$ ]]; then
            word="'$word'"
        fi
        text+="${text:+ }$word"
    done
    printf '%s' "$text"
}

# With STEP=1: show the command, wait for the "go" of scenario.sh.
gate() { # COMMAND...
    if [[ ${STEP:-} != 1 ]]; then
        return
    fi
    gates=$((gates + 1))
    report "$name" next - "$(as_typed "$@")"
    until count_events "$name" go && ((COUNT >= gates)); do
        nap
    done
}

# One HTTP request. No answer at all is status 000.
request() { # CURL-ARGUMENT...
    local answer
    now
    sent_us=$NOW_US
    answer=$(curl -sS -i --max-time 30 "$@") || answer=$'HTTP/1.1 000\r\n\r\n'
    answer=${answer//$'\r'/}
    headers=${answer%%$'\n\n'*}
    body=${answer#*$'\n\n'}
    status=${answer#* }
    status=${status:0:3}
}

# The first field of this name in the JSON body, without quotes. Enough for flat answers.
field() { # NAME
    local pattern="\"$1\"[[:space:]]*:[[:space:]]*(\"([^\"]*)\"|[^],}[:space:]]+)"
    if [[ $body =~ $pattern ]]; then
        printf '%s' "${BASH_REMATCH[2]:-${BASH_REMATCH[1]}}"
    fi
}

# The value of a response header.
header() { # NAME
    local line
    while IFS= read -r line; do
        if [[ ${line,,} == "${1,,}: "* ]]; then
            printf '%s' "${line#*: }"
        fi
    done <<<"$headers"
}

# The facts of a refusal.
refusal() {
    local code retry highest
    code=$(field code)
    retry=$(header Retry-After)
    highest=$(field highest_fencing_token)
    printf 'code=%s' "${code:-none}"
    if [[ -n $retry ]]; then
        printf ' retry_after=%s' "$retry"
    fi
    if [[ $code == lease_held ]]; then
        printf ' holder=%s' "$(field fencing_token)"
    elif [[ -n $highest ]]; then
        printf ' sent=%s highest=%s reason=%s' "$(field fencing_token)" "$highest" "$(field reason)"
    fi
}

# One try to get the lease. False where the answer is no.
try_acquire() {
    request "${acquire[@]}"
    if [[ $status != 201 ]]; then
        return 1
    fi
    token=$(field fencing_token)
    lease_id=$(field lease_id)
    report "$name" acquire 201 "token=$token ttl_ms=$(field ttl_ms) sent_us=$sent_us"
}

prepare_acquire() { # TTL-SECONDS
    local json
    json="{\"resource\":\"$RESOURCE\",\"ttl_ms\":$(seconds_to_ms "$1"),\"owner\":\"$name\"}"
    acquire=(-X POST "$FENCE_URL/leases" -d "$json")
    gate curl -i "${acquire[@]}"
}

do_acquire() { # TTL-SECONDS
    local acquire
    prepare_acquire "$1"
    try_acquire || report "$name" acquire "$status" "$(refusal)"
}

do_acquire_retrying() { # TTL-SECONDS
    local acquire
    prepare_acquire "$1"
    until try_acquire; do
        if [[ $status != 409 && $status != 503 ]]; then # what waiting does not help against
            report "$name" acquire "$status" "$(refusal)"
            break
        fi
        report "$name" try "$status" "$(refusal)"
        sleep 0.05
    done
}

do_renew() { # WHAT-A-REFUSAL-IS-REPORTED-AS
    request "${renew[@]}"
    if [[ $status == 200 ]]; then
        report "$name" renew 200 \
            "token=$token ttl_ms=$(field ttl_ms) left_ms=$(field expires_in_ms) sent_us=$sent_us"
    else
        report "$name" "$1" "$status" "token=$token $(refusal)"
    fi
}

prepare_renew() {
    renew=(-X POST "$FENCE_URL/leases/$lease_id/renew")
    gate curl -i "${renew[@]}"
}

do_renew_once() {
    local renew
    prepare_renew
    do_renew renew
}

do_renew_retrying() {
    local renew
    prepare_renew
    do_renew renew_try
    while [[ $status == 503 ]]; do
        sleep 0.1
        do_renew renew_try
    done
}

do_keep_renewing() { # SECONDS
    local renew=(-X POST "$FENCE_URL/leases/$lease_id/renew")
    while true; do
        sleep "$1"
        do_renew renew
    done
}

do_release() {
    gate curl -i -X DELETE "$FENCE_URL/leases/$lease_id"
    request -X DELETE "$FENCE_URL/leases/$lease_id"
    if [[ $status == 200 ]]; then
        report "$name" release 200 "token=$token"
    else
        report "$name" release "$status" "token=$token $(refusal)"
    fi
}

# The charge that nobody guards.
do_charge() {
    local insert row
    insert="INSERT INTO charges (invoice, amount, worker) VALUES ('$RESOURCE', 100, '$name')"
    gate sqlite3 "$TABLE" "$insert"
    row=$(sqlite3 -batch -cmd '.timeout 10000' "$TABLE" "$insert RETURNING id") || true
    if [[ -n $row ]]; then
        report "$name" charge ok "row=$row"
    else
        report "$name" charge failed -
    fi
}

# The charge through the gateway.
do_put() {
    local put
    put=(-X PUT "$FENCE_URL/store/$RESOURCE/charge" -H "X-Fencing-Token: $token"
        -H 'Content-Type: application/json' -d "{\"amount\":100,\"by\":\"$name\"}")
    gate curl -i "${put[@]}"
    request "${put[@]}"
    if [[ $status == 20? ]]; then
        report "$name" put "$status" "token=$token version=$(field version)"
    else
        report "$name" put "$status" "token=$token $(refusal)"
    fi
}

wait_for_event() { # ACTOR:WHAT
    until count_events "${1%%:*}" "${1#*:}" && ((COUNT > 0)); do
        nap
    done
}

count_events "$name" go
gates=$COUNT
for step; do
    argument=${step#*=}
    case $step in
        acquire=*) do_acquire "$argument" ;;
        acquire_retrying=*) do_acquire_retrying "$argument" ;;
        renew) do_renew_once ;;
        renew_retrying) do_renew_retrying ;;
        keep_renewing=*) do_keep_renewing "$argument" ;;
        release) do_release ;;
        charge) do_charge ;;
        put) do_put ;;
        work=*) sleep "$argument" ;;
        after=*) wait_for_event "$argument" ;;
        token=*) token=$argument ;;
        *)
            printf '%s: unknown step: %s\n' "$0" "$step" >&2
            exit 64
            ;;
    esac
done
