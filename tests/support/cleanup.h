/* cleanup.h - whatever a test opens is undone when it ends, however it ends.
 *
 * Everything that tests/support hands out (folders, processes, servers, answers, strings) registers
 * itself here and lives until the end of the test, so that a test frees nothing by hand and a
 * failed assertion leaves nothing behind:
 *
 *     cmocka_unit_test_teardown(test_x, cleanup_test)
 *
 * What a group setup opens for all tests of a file lives until the program ends once the setup has
 * called cleanup_keep(). Main thread only. */
#ifndef TESTS_CLEANUP_H
#define TESTS_CLEANUP_H

#include <stdarg.h>
#include <stddef.h>

/* Runs undo(arg) when the test ends, before everything that was added earlier. Returns `arg`. */
void *cleanup_add(void (*undo)(void *), void *arg);

/* Forgets what was added for `arg`: the caller has undone it. */
void cleanup_forget(const void *arg);

/* What stands now is the whole file's: it outlives the single test. */
void cleanup_keep(void);

/* Marks the test as failed, for undo functions: they run where assertions may not. The message
 * (printf) goes to stderr. */
void cleanup_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A cmocka teardown: undoes what was added since cleanup_keep(). Returns -1, which fails the test,
 * where cleanup_fail() was called. */
int cleanup_test(void **state);

/* Memory of `bytes` zero bytes that lives until the test ends. Never NULL. */
void *test_alloc(size_t bytes);

/* A string built by printf that lives until the test ends. */
char *test_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
