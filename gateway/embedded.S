/* embedded.S - files that the program carries inside: scripts, schema, API description.
 *
 * Each ends with a NUL, so that C sees a string. The names are declared where they are used. */

    .macro embed name, path
    .global \name
    .type \name, @object
\name:
    .incbin "\path"
    .byte 0
    .size \name, . - \name
    .endm

    .section .rodata
    embed embedded_schema_sql, "storage/schema.sql"
    embed embedded_acquire_lua, "lua/acquire.lua"
    embed embedded_renew_lua, "lua/renew.lua"
    embed embedded_release_lua, "lua/release.lua"
    embed embedded_inspect_lua, "lua/inspect.lua"
    embed embedded_hello_lua, "lua/hello.lua"
    embed embedded_openapi_yaml, "openapi/openapi.yaml"

    .section .note.GNU-stack, "", @progbits
