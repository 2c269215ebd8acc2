/* The option catalogue for readers: on the terminal and as a page of the documentation. */
#ifndef FL_CLI_CONFIG_PAGES_H
#define FL_CLI_CONFIG_PAGES_H

#include <stdio.h>

#include "harness/cli/option_catalogue.h"

/* One entry a key. */
void fl_config_page_list(FILE *stream);
/* All that is known of a key, and the keys inside it. */
void fl_config_page_key(FILE *stream, const fl_catalogue_key *key);
/* docs/configuration.md. */
void fl_config_page_markdown(FILE *stream);

#endif
