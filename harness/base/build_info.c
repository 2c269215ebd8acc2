#include "harness/base/build_info.h"

#include "build_revision.h" /* generated; in the build folder */

const char *fl_build_revision(void) {
    return FL_BUILD_REVISION;
}

const char *fl_build_compiler(void) {
#ifdef __clang__
    return "clang " __VERSION__;
#else
    return "gcc " __VERSION__;
#endif
}

const char *fl_build_flags(void) {
    return FL_BUILD_FLAGS;
}

const char *fl_build_config(void) {
    return FL_BUILD_CONFIG;
}
