# shellcheck shell=bash
# servers.sh - starts the gateway of a scenario, and where it needs one the Redis behind it. Both
# live in the scenario's temporary folder and end with it (clean_up in scenario.sh).

GATEWAY=${GATEWAY:-$(cd "$LIB/../../.." && pwd)/build/fencegate}
GATEWAY_PID=
REDIS_PID=

# Starts a gateway on a free port, with whatever options, or takes the one at FENCE_URL.
# Sets FENCE_URL and RESOURCE, the name that the workers compete for.
start_gateway() { # OPTION...
    if [[ -n ${FENCE_URL:-} ]]; then
        FENCE_URL=${FENCE_URL%/}
        printf -v RESOURCE 'invoice:%06x' $((SRANDOM & 0xffffff)) # a name that nobody else uses
    else
        need redis-server # the gateway starts one, where the scenario does not
        if [[ ! -x $GATEWAY ]]; then
            printf '%s: no gateway at %s; run "make build"\n' "${0##*/}" "$GATEWAY" >&2
            exit 69
        fi
        spawn TERM "$GATEWAY" --listen 127.0.0.1:0 --data-dir "$DIR/data" "$@" 2>"$DIR/gateway.log"
        GATEWAY_PID=$!
        await_gateway_url
        RESOURCE=invoice:1234
    fi
    export FENCE_URL RESOURCE
    await_ready
}

await_gateway_url() {
    local line deadline=$((SECONDS + PATIENCE))
    while true; do
        while IFS= read -r line; do
            if [[ $line == *listening* && $line =~ http://[0-9.]+:[0-9]+ ]]; then
                FENCE_URL=${BASH_REMATCH[0]}
                return
            fi
        done <"$DIR/gateway.log"
        if ! alive "$GATEWAY_PID" || ((SECONDS > deadline)); then
            fail "the gateway did not start; its last lines:" "$(tail -n 3 "$DIR/gateway.log")"
        fi
        nap
    done
}

# Ready is the gateway with its Redis: it starts without.
await_ready() {
    local deadline=$((SECONDS + PATIENCE)) answer
    until answer=$(curl -sS --max-time 10 "$FENCE_URL/readyz" 2>&1) &&
        [[ $answer =~ \"redis\"[[:space:]]*:[[:space:]]*\"ok\" ]]; do
        if ((SECONDS > deadline)) || [[ -z $GATEWAY_PID ]]; then
            fail "the gateway at $FENCE_URL is not ready: $answer"
        fi
        nap
    done
}

# Starts a redis-server that is only ours, so that we may empty or stop it. Sets REDIS_SOCKET.
start_redis() {
    REDIS_SOCKET=$DIR/redis.sock
    spawn KILL redis-server --port 0 --unixsocket "$REDIS_SOCKET" --dir "$DIR" --save '' \
        --appendonly no --loglevel warning >"$DIR/redis.log" 2>&1
    REDIS_PID=$!
    local deadline=$((SECONDS + PATIENCE))
    until [[ $(redis PING 2>/dev/null) == PONG ]]; do
        if ! alive "$REDIS_PID" || ((SECONDS > deadline)); then
            fail "redis-server did not start; its last lines:" "$(tail -n 3 "$DIR/redis.log")"
        fi
        nap
    done
}

# A command to it.
redis() { redis-cli -s "$REDIS_SOCKET" "$@"; }

# Starts a gateway with a Redis that is only ours to harm.
start_gateway_and_redis() {
    start_redis
    start_gateway --redis "unix://$REDIS_SOCKET"
}
