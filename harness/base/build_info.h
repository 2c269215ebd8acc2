/* Build information: which code, compiler and flags made this program. Part of every run file's provenance.
 */
#ifndef FL_BASE_BUILD_INFO_H
#define FL_BASE_BUILD_INFO_H

const char *fl_build_revision(void); /* git describe --always --dirty, or "unknown" */
const char *fl_build_compiler(void);
const char *fl_build_flags(void);
const char *fl_build_config(void); /* "release", "asan", ... */

#endif
