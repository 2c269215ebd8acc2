/* Fuzz target: any bytes as a config file, parsed and bound. Whatever is accepted must be accepted again in
 * canonical form. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/config/experiment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_canonical_form(const fl_document *document) {
    char *text = NULL, *again = NULL;
    fl_document *copy = NULL;
    if (fl_node_text(fl_document_root(document), &text, NULL) != FL_OK) abort();
    if (fl_document_parse_text(text, strlen(text), "canonical", &copy, NULL) != FL_OK) abort();
    if (fl_node_text(fl_document_root(copy), &again, NULL) != FL_OK) abort();
    if (strcmp(text, again) != 0) abort();
    fl_memory_free(text);
    fl_memory_free(again);
    fl_document_destroy(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fl_document *document = NULL;
    if (fl_document_parse_text((const char *)data, size, "fuzz.yaml", &document, NULL) != FL_OK) return 0;
    check_canonical_form(document);
    fl_document_destroy(document);

    char *text = NULL;
    if (FL_ALLOCATE(&text, size + 1, NULL) != FL_OK) return 0;
    memcpy(text, data, size);
    fl_experiment_list *list = NULL;
    char id[13];
    if (fl_experiment_parse(text, "fuzz.yaml", NULL, 0, &list, NULL) == FL_OK) {
        for (size_t i = 0; i < list->count && i < 8; i++) {
            fl_experiment_run_id(list->cells[i], NULL, 0, id, NULL);
        }
        fl_experiment_list_destroy(list);
    }
    fl_memory_free(text);
    return 0;
}
