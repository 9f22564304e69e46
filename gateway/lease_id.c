/* lease_id.c - lease ids: random secrets and their text form (lease_id.h). */
#include "gateway/lease_id.h"

#include "gateway/base64url.h"
#include "gateway/random.h"

#include <string.h>

enum {
    ID_BYTES = 30,
    ID_VERSION = 1,
    VERSION_AT = LEASE_SECRET_BYTES,
    RESOURCE_AT = VERSION_AT + 1,
    RESOURCE_BYTES = 6,
    TOKEN_AT = RESOURCE_AT + RESOURCE_BYTES,
    TOKEN_BYTES = 7
};

_Static_assert(TOKEN_AT + TOKEN_BYTES == ID_BYTES, "the parts fill the id");
_Static_assert(BASE64URL_CHARS(ID_BYTES) == LEASE_ID_CHARS, "the id has as many characters");

static void put_number(uint8_t *to, size_t bytes, int64_t number)
{
    for (size_t i = bytes; i-- > 0; number >>= 8)
        to[i] = (uint8_t)(number & 0xff);
}

static int64_t get_number(const uint8_t *from, size_t bytes)
{
    int64_t number = 0;
    for (size_t i = 0; i < bytes; i++)
        number = number << 8 | from[i];
    return number;
}

void lease_id_write(const struct lease_key *key, char out[LEASE_ID_CHARS + 1])
{
    uint8_t bytes[ID_BYTES];
    memcpy(bytes, key->secret, LEASE_SECRET_BYTES);
    bytes[VERSION_AT] = ID_VERSION;
    put_number(bytes + RESOURCE_AT, RESOURCE_BYTES, key->resource_id);
    put_number(bytes + TOKEN_AT, TOKEN_BYTES, key->token);
    base64url_write(bytes, sizeof bytes, out);
}

bool lease_id_read(const char *text, struct lease_key *key)
{
    uint8_t bytes[ID_BYTES];
    size_t count;
    if (!base64url_read(text, bytes, sizeof bytes, &count) || count != sizeof bytes)
        return false;
    memcpy(key->secret, bytes, LEASE_SECRET_BYTES);
    key->resource_id = get_number(bytes + RESOURCE_AT, RESOURCE_BYTES);
    key->token = get_number(bytes + TOKEN_AT, TOKEN_BYTES);
    return bytes[VERSION_AT] == ID_VERSION && key->resource_id > 0 && key->token > 0 &&
           key->token <= FENCING_TOKEN_MAX;
}

void lease_ref_write(const struct lease_key *key, char out[LEASE_REF_CHARS + 1])
{
    char id[LEASE_ID_CHARS + 1];
    lease_id_write(key, id);
    memcpy(out, id, LEASE_REF_CHARS);
    out[LEASE_REF_CHARS] = '\0';
}

void lease_secret_random(uint8_t secret[LEASE_SECRET_BYTES])
{
    random_bytes(secret, LEASE_SECRET_BYTES);
}
