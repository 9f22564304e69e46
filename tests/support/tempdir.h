/* tempdir.h - a folder of a test's own, removed with all it holds when the test ends.
 *
 * With FENCEGATE_KEEP=1 in the environment the folders stay, for a look at the logs in them. */
#ifndef TESTS_TEMPDIR_H
#define TESTS_TEMPDIR_H

/* Creates an empty folder under $TMPDIR or /tmp and returns its absolute path. Fails the test where
 * it can't. Owned by the test. */
const char *tempdir_new(void);

#endif
