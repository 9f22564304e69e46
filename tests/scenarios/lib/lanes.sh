# shellcheck shell=bash
# lanes.sh - draws what happened in a part as one lane per worker, from left to right in time:
#
#     A [====3====]......x        . paused   x refused
#     B           [====4===+]     + accepted
#
# [==3==] is a lease with token 3: from its grant until its TTL passed, it was released, or another
# grant replaced it; ~~~ is waiting for one in the gateway's queue. A lease that `fence run` keeps
# does not end by its TTL. [===] is a lock without a token. Everything comes from $EVENTS; the
# columns are the times, scaled. What lies closer together than a column still gets a column each,
# in the order in which it happened.

SHARED= # 1: the resource is a semaphore, where a grant replaces nobody whose TTL has not passed

FOR_EVER=$((1 << 62)) # as the end of a lease, in microseconds

declare -A LANE_MEANING=(
    ['~']='waiting' [.]='paused' [-]='still at work' [#]='killed' [!]='no Redis: 503'
    [o]='renewed' [x]='refused' [+]='accepted' [t]='told to end, ended'
)

# Prints the picture of the current part.
draw_lanes() { # WIDTH ACTOR...
    local width=$1 first_us last_us actor longest=0
    local -A lane=()
    local happenings
    shift

    happenings=$(collect_happenings | sort -snk1,1)
    first_us=${happenings%% *}
    last_us=${happenings##*$'\n'}
    last_us=${last_us%% *}
    for actor; do
        draw_lane
        lane[$actor]=$LANE
        longest=$((${#LANE} > longest ? ${#LANE} : longest))
    done
    echo
    local explained=''
    for actor; do
        print_lane
    done
}

# Turns $EVENTS into lines "time actor character token". The characters are those of the picture;
# s and c are SIGSTOP and SIGCONT, w is where waiting begins.
collect_happenings() {
    local at actor what status facts last=''
    local now_us=0
    local -A told=()      # by actor: its job has ended when told to
    local -A lease_end=() # by actor: of the lease that it got last
    while IFS=$'\t' read -r at actor what status facts; do
        now_us=$at
        case $what:$status in
            acquire:201)
                if [[ -n $last && $SHARED != 1 ]] && ((lease_end[$last] > at)); then
                    lease_end[$last]=$at # replaced
                fi
                end_lease
                lease_end[$actor]=$((at + $(lane_fact ttl_ms) * 1000))
                if [[ $(lane_fact kept) == 1 ]]; then
                    lease_end[$actor]=$FOR_EVER
                fi
                last=$actor
                happening '[' "$(lane_fact token)"
                ;;
            renew:200)
                lease_end[$actor]=$((at + $(lane_fact ttl_ms) * 1000))
                happening o
                ;;
            release:200)
                lease_end[$actor]=$at
                end_lease
                ;;
            charge:ok | put:20?) happening + ;;
            lock:ok) happening '[' ;;
            unlock:ok) happening ']' ;;
            SIGTERM:*)
                told[$actor]=1
                happening t
                ;;
            exit:79) # the lease goes on until somebody gets it
                [[ -n ${told[$actor]:-} ]] || happening '#'
                ;;
            exit:137) ;;
            exit:*)
                if [[ -n ${lease_end[$actor]:-} ]]; then
                    lease_end[$actor]=$at
                    end_lease
                fi
                ;;
            *:503) happening '!' ;;
            *:4?? | serve:80) happening x ;;
            wait:*) happening w ;;
            SIGKILL:*) happening '#' ;;
            SIGSTOP:*) happening s ;;
            SIGCONT:*) happening c ;;
        esac
    done < <(grep -v '[[:space:]]\w*try[[:space:]]' "$EVENTS") # tries that were repeated
    for actor in "${!lease_end[@]}"; do
        if ((lease_end[$actor] == FOR_EVER)); then
            lease_end[$actor]=$now_us
        fi
        end_lease
    done
}

happening() { # CHARACTER [TOKEN]; and at, actor of collect_happenings
    printf '%s %s %s %s\n' "$at" "$actor" "$1" "${2:-}"
}

# The end of the lease that $actor had, if it had one.
end_lease() {
    if [[ -n ${lease_end[$actor]:-} ]]; then
        printf '%s %s ]\n' "${lease_end[$actor]}" "$actor"
        unset "lease_end[$actor]"
    fi
}

lane_fact() { # NAME; and facts of collect_happenings
    if [[ " $facts" =~ " $1="([^ ]*) ]]; then
        printf '%s' "${BASH_REMATCH[1]}"
    fi
}

# Draws the lane of $actor. Sets LANE.
draw_lane() {
    local at who character token
    local gap=' '         # what the lane is filled with up to its next character
    local idle='-'        # the same outside of a lease, once there was one
    local bracket=-1      # where its last lease begins
    local label=''        # the token of that lease
    LANE=
    while read -r at who character token; do
        if [[ $who != "$actor" ]]; then
            continue
        fi
        if [[ $character == '[' && $gap != '~' ]]; then
            gap=' '
        fi
        fill_lane $(((at - first_us) * width / (last_us - first_us + 1)))
        case $character in
            s) # in a lease the pause does not show, in a lock it does
                idle=.
                [[ $gap == '=' && -n $label ]] || gap=.
                ;;
            c) ;;
            w) gap='~' ;;
            '[')
                bracket=${#LANE}
                label=$token
                LANE+='['
                gap='='
                ;;
            ']')
                label_lease
                LANE+=']'
                label=
                gap=$idle
                ;;
            *)
                LANE+=$character
                if [[ $gap == '~' && $character == [#x!] ]]; then
                    gap=' ' # waiting is over
                fi
                ;;
        esac
    done <<<"$happenings"
}

# Fills the lane up to a column, and so far that the token of an open lease has its place.
fill_lane() { # COLUMN
    local to=$1
    if [[ -n $label ]] && ((to < bracket + 1 + ${#label})); then
        to=$((bracket + 1 + ${#label}))
    fi
    while ((${#LANE} < to)); do
        LANE+=$gap
    done
}

# Writes the token into its lease: as near to the middle as the marks let it.
label_lease() {
    local blank=${label//?/=} middle=$(((bracket + 1 + ${#LANE} - ${#label}) / 2)) shift at
    for ((shift = 0; shift < ${#LANE}; shift++)); do
        for at in $((middle - shift)) $((middle + shift)); do
            if ((at > bracket)) && [[ ${LANE:at:${#label}} == "$blank" ]]; then
                LANE=${LANE:0:at}$label${LANE:at+${#label}}
                return
            fi
        done
    done
}

# Prints the lane of $actor, with what its characters mean where no lane above has said so.
print_lane() {
    local text=${lane[$actor]} character legend='' padding
    for character in '~' . - t '#' '!' o x +; do
        if [[ $text == *"$character"* && $explained != *"$character"* ]]; then
            legend+="${legend:+   }$character ${LANE_MEANING[$character]}"
            explained+=$character
        fi
    done
    printf -v padding '%*s' $((longest + 5 - ${#text})) ''
    text=${text//x/${RED}x${PLAIN}}
    text=${text//+/${GREEN}+${PLAIN}}
    printf '   %s %s%s\n' "$actor" "$text" "${legend:+$padding$legend}"
}
