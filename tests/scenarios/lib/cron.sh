# shellcheck shell=bash
# cron.sh - the steps of a host that has a job to do at an instant, like others that have the same
# line in their crontab.
#
#     once=INSTANT    write down under the lease that the job of that instant is being done, if
#                     nobody has: the instant is the key of a record, put with If-None-Match: *
#     run=SECONDS     do the job, which takes so long, unless `once` has found that somebody has

due=yes # is the job still ours to do?

do_once() { # INSTANT
    local put
    put=(-X PUT "$FENCE_URL/store/$RESOURCE/$1" -H "X-Fencing-Token: $token" -H 'If-None-Match: *'
        -d "$name")
    gate curl -i "${put[@]}"
    request "${put[@]}"
    if [[ $status == 201 ]]; then
        report "$name" once 201 "token=$token version=$(field version)"
    else
        due=
        report "$name" once "$status" "token=$token $(refusal)"
    fi
}

do_run() { # SECONDS
    if [[ -n $due ]]; then
        report "$name" run ok -
        sleep "$1"
    fi
}
