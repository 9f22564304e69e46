#!/usr/bin/env bash
# worker.sh - a worker that wants to charge an invoice. A process of its own, started by
# scenario.sh. It does the steps given as arguments, one after the other:
#
#     worker.sh A acquire=1 work=0.7 put release
#
#     acquire=TTL            ask the gateway for the lease, once; TTL in seconds
#     acquire_retrying=TTL   ask until it is granted
#     wait=SECONDS           how long an acquire lets the gateway wait for it (0: not at all)
#     limit=N                how many may hold the resource at once, named in each acquire
#     renew                  renew the lease, once; renew=TTL: with another TTL
#     renew_retrying         renew until the gateway can (it answers 503 while Redis is away)
#     keep_renewing=SECONDS  renew at this interval for ever, as a watchdog does (STEP=1 or not)
#     release                release the lease
#     charge                 insert a row into a plain SQLite table: nobody checks anything
#     put                    write the charge through the gateway, with the fencing token;
#                            put=KEY: another record
#     work=SECONDS           the real work: here it just takes time
#     after=ACTOR:WHAT       the work lasts until that event: see below
#     until=WORD             the same for a crowd: until the script says that word (say)
#     token=N                do not acquire: use token N
#     ready                  say that the next step is about to come
#     look, take, unfence, stock=N, read, sell, sell_blind, buy    see stock.sh
#     enter, leave, pool=SIZE:JOBS, charge_newest=N                see permits.sh
#     incr=N, decr, zcard=N, zadd                                  see redis_semaphore.sh
#     once=INSTANT, run=SECONDS                                    see cron.sh
#     look_up, rebuild                                             see cache.sh
#     lock, unlock                                                 see local_lock.sh
#     held, heed, ignore=SIGNAL, helper=SECONDS, beat, serve=WORD  see job.sh
#
# A worker knows nothing of the others and believes that it holds what it was granted. `after` is
# the one exception: it makes a slow machine tell the same story as a fast one, where a fixed time
# would not. It only delays; no step looks at what the others did.
#
# Every answer becomes a line in $EVENTS (common.sh). With STEP=1 the worker shows each command
# and waits until it may go on.
#
# Environment: FENCE_URL, RESOURCE, EVENTS, TABLE (the SQLite file), STEP; CACHE, REDIS_SOCKET,
# FENCE_BIN where the scenario has them.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=common.sh
source "${BASH_SOURCE[0]%/*}/common.sh"
# shellcheck source-path=SCRIPTDIR source=stock.sh
source "${BASH_SOURCE[0]%/*}/stock.sh"
# shellcheck source-path=SCRIPTDIR source=permits.sh
source "${BASH_SOURCE[0]%/*}/permits.sh"
# shellcheck source-path=SCRIPTDIR source=redis_semaphore.sh
source "${BASH_SOURCE[0]%/*}/redis_semaphore.sh"
# shellcheck source-path=SCRIPTDIR source=cron.sh
source "${BASH_SOURCE[0]%/*}/cron.sh"
# shellcheck source-path=SCRIPTDIR source=cache.sh
source "${BASH_SOURCE[0]%/*}/cache.sh"
# shellcheck source-path=SCRIPTDIR source=local_lock.sh
source "${BASH_SOURCE[0]%/*}/local_lock.sh"
# shellcheck source-path=SCRIPTDIR source=job.sh
source "${BASH_SOURCE[0]%/*}/job.sh"

name=$1
shift

token=    # the fencing token of our lease
lease_id= # the secret that renews and releases it
limit=    # named in an acquire, where it is set
wait_ms=0 # how long an acquire may wait
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
    answer=$(curl -sS -i --max-time $((30 + wait_ms / 1000)) "$@") || answer=$'HTTP/1.1 000\r\n\r\n'
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
    report "$name" acquire 201 "token=$token ttl_ms=$(field ttl_ms) sent_us=$sent_us$(waiting)"
}

# The facts of having waited.
waiting() {
    if ((wait_ms > 0)); then
        printf ' waited_ms=%s left_ms=%s' "$(field waited_ms)" "$(field expires_in_ms)"
    fi
}

prepare_acquire() { # TTL-SECONDS
    local json
    json="{\"resource\":\"$RESOURCE\",\"ttl_ms\":$(seconds_to_ms "$1"),\"owner\":\"$name\""
    if [[ -n $limit ]]; then
        json+=",\"limit\":$limit"
    fi
    if ((wait_ms > 0)); then
        json+=",\"wait_ms\":$wait_ms"
    fi
    json+='}'
    acquire=(-X POST "$FENCE_URL/leases" -d "$json")
    gate curl -i "${acquire[@]}"
}

do_acquire() { # TTL-SECONDS
    local acquire
    prepare_acquire "$1"
    if ((wait_ms > 0)); then
        report "$name" wait - "wait_ms=$wait_ms"
    fi
    try_acquire || report "$name" acquire "$status" "$(refusal)$(waiting)"
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

prepare_renew() { # [TTL-SECONDS]
    renew=(-X POST "$FENCE_URL/leases/$lease_id/renew")
    if [[ -n ${1:-} ]]; then
        renew+=(-d "{\"ttl_ms\":$(seconds_to_ms "$1")}")
    fi
    gate curl -i "${renew[@]}"
}

do_renew_once() { # [TTL-SECONDS]
    local renew
    prepare_renew "$@"
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
do_put() { # KEY
    local put
    put=(-X PUT "$FENCE_URL/store/$RESOURCE/$1" -H "X-Fencing-Token: $token"
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

wait_for_word() { # WORD
    until [[ -e $EVENTS.$1 ]]; do
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
        wait=*) wait_ms=$(seconds_to_ms "$argument") ;;
        limit=*) limit=$argument ;;
        renew) do_renew_once ;;
        renew=*) do_renew_once "$argument" ;;
        renew_retrying) do_renew_retrying ;;
        keep_renewing=*) do_keep_renewing "$argument" ;;
        release) do_release ;;
        charge) do_charge ;;
        put) do_put charge ;;
        put=*) do_put "$argument" ;;
        work=*) sleep "$argument" ;;
        after=*) wait_for_event "$argument" ;;
        until=*) wait_for_word "$argument" ;;
        token=*) token=$argument ;;
        stock=*) do_stock "$argument" ;;
        look | take | unfence | read | sell | sell_blind | buy) "do_$step" ;;
        enter | leave | decr | zadd | look_up | rebuild) "do_$step" ;;
        pool=* | charge_newest=*) "do_${step%%=*}" "$argument" ;;
        incr=* | zcard=* | once=* | run=*) "do_${step%%=*}" "$argument" ;;
        lock | unlock | held | heed | beat) "do_$step" ;;
        ignore=* | helper=* | serve=*) "do_${step%%=*}" "$argument" ;;
        ready) report "$name" ready ok - ;;
        *)
            printf '%s: unknown step: %s\n' "$0" "$step" >&2
            exit 64
            ;;
    esac
done
