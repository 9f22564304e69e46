/* version.h - the version of fencegate, as --version and GET /version tell it. */
#ifndef FG_VERSION_H
#define FG_VERSION_H

#define FG_VERSION "0.1.0"

#endif
