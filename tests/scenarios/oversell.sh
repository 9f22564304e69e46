#!/usr/bin/env bash
# oversell.sh - the last piece, and two who want it. Both read that one is left, both write that
# none is: it is sold twice. Here a lock would do, but nothing has to be held: the write says which
# version it was made from, and of an unfenced resource the gateway takes it only if that is still
# the one. Then twenty buyers and ten pieces, all at once.
#
# STEP=1, FENCE_URL.

# shellcheck source-path=SCRIPTDIR source=lib/scenario.sh
source "${BASH_SOURCE[0]%/*}/lib/scenario.sh"

need sqlite3

begin "fencegate: the last piece is sold once, and nobody waits for a lock."
start_gateway
export RESOURCE=stock:${RESOURCE#*:}

part 1 "Read, subtract, write back: a plain table"

sqlite3 -batch "$TABLE" "CREATE TABLE stock (pieces INTEGER); INSERT INTO stock VALUES (1)"

worker A look after=B:look take
worker B after=A:look look after=A:take take
outcome A look "how many are left?" ok
outcome B look "how many are left?" ok
outcome A take "sold: write one less" ok
outcome B take "sold: write one less" ok

step "sqlite3 $TABLE 'SELECT pieces FROM stock'"
must "the table says that none is left" \
    test "$(sqlite3 -batch "$TABLE" 'SELECT pieces FROM stock')" = 0
count_events A take && sold=$COUNT
count_events B take && sold=$((sold + COUNT))
verdict "$RED" "sold, of 1 piece" "$sold" 2 "OVERSOLD"

part 2 "The same through the gateway: the write says what it was made from"

worker O unfence stock=1 # the owner of the shop
outcome O unfence "PUT $RESOURCE, fenced: false" 200
outcome O stock "PUT left, If-None-Match: *" 201

worker A read after=B:read sell
worker B after=A:read read after=A:sell sell_blind sell read
outcome A read "how many are left?" 200
outcome B read "how many are left?" 200
outcome A sell "one less, If-Match: \"v1\"" 200
outcome B sell_blind "one less, no condition" "428 precondition_required"
outcome B sell "one less, If-Match: \"v1\"" "412 version_mismatch"
outcome B read "how many are left?" 200
fact left
must "B sees that none is left" test "$FACT" = 0

count_accepted # the first of them is the owner's
verdict "$GREEN" "sold, of 1 piece" $((COUNT - 1)) 1 "SOLD ONCE"

part 3 "Ten pieces, twenty buyers at once"

BUYERS=20
RESOURCE=$RESOURCE:10
worker O unfence stock=10
outcome O unfence "PUT $RESOURCE, fenced: false" 200
outcome O stock "PUT left, If-None-Match: *" 201

for ((buyer = 1; buyer <= BUYERS; buyer++)); do
    worker "B$buyer" after=O:stock buy
done
sold=0 in_vain=0 again=0
for ((buyer = 1; buyer <= BUYERS; buyer++)); do
    await "B$buyer" buy
    must "B$buyer has bought one, or was told that none is left" test "$EVENT_STATUS" = 200
    fact version # of a sale
    if [[ -n $FACT ]]; then
        sold=$((sold + 1))
    else
        in_vain=$((in_vain + 1))
    fi
    count_events "B$buyer" again
    again=$((again + COUNT))
done
note "$again times somebody else was faster: read again, try again"
must "ten are told that none is left" test "$in_vain" = $((BUYERS - 10))
worker O read
outcome O read "how many are left?" 200
fact left
must "none is left" test "$FACT" = 0
count_accepted
must "the ledger has as many sales" test $((COUNT - 1)) = "$sold"
verdict "$GREEN" "sold, of 10 pieces" "$sold" 10 "ALL SOLD, NONE TWICE"
