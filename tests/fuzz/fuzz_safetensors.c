/* Fuzz target: any bytes as a safetensors file. What is accepted lies inside the bytes and can be widened. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/memory.h"
#include "harness/model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIDEST_ROW = 4096 };

static void widen_ends(const fl_tensor *tensor) {
    float row[WIDEST_ROW];
    if (tensor->rows == 0 || tensor->columns > WIDEST_ROW) return;
    fl_tensor_widen_row(tensor, 0, row);
    fl_tensor_widen_row(tensor, tensor->rows - 1, row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[] = "fuzz.safetensors";
    const fl_mapped_file file = {.path = path, .data = data, .size = size, .descriptor = -1};
    fl_checkpoint_entries entries = {0};
    fl_safetensors_metadata metadata = {0};
    fl_error error;
    fl_status status = fl_safetensors_list(&file, &entries, &metadata, &error);
    if (status == FL_OK) status = fl_checkpoint_entries_index(&entries, path, &error);
    for (size_t i = 0; status == FL_OK && i < entries.count; i++) {
        const fl_checkpoint_entry *entry = &entries.items[i];
        if (entry->bytes < data || entry->bytes + entry->byte_count > data + size) abort();
        if (fl_checkpoint_entries_find(&entries, entry->tensor.name) != entry) abort();
        if (entry->readable) widen_ends(&entry->tensor);
    }
    fl_checkpoint_entries_free(&entries);
    fl_safetensors_metadata_free(&metadata);
    return 0;
}
