#include "harness/model/stored_type.h"

#include <string.h>

static const fl_stored_type types[] = {
    [FL_DTYPE_F32] = {"F32", 1, 4, 0, true},
    [FL_DTYPE_F16] = {"F16", 1, 2, 1, true},
    [FL_DTYPE_BF16] = {"BF16", 1, 2, 30, true},
    [FL_DTYPE_Q4_0] = {"Q4_0", 32, 18, 2, false},
    [FL_DTYPE_Q4_1] = {"Q4_1", 32, 20, 3, false},
    [FL_DTYPE_Q5_0] = {"Q5_0", 32, 22, 6, false},
    [FL_DTYPE_Q5_1] = {"Q5_1", 32, 24, 7, false},
    [FL_DTYPE_Q8_0] = {"Q8_0", 32, 34, 8, false},
    [FL_DTYPE_Q2_K] = {"Q2_K", 256, 84, 10, false},
    [FL_DTYPE_Q3_K] = {"Q3_K", 256, 110, 11, false},
    [FL_DTYPE_Q4_K] = {"Q4_K", 256, 144, 12, false},
    [FL_DTYPE_Q5_K] = {"Q5_K", 256, 176, 13, false},
    [FL_DTYPE_Q6_K] = {"Q6_K", 256, 210, 14, false},
    /* listed only */
    {"Q8_1", 32, 36, 9, false},
    {"Q8_K", 256, 292, 15, false},
    {"IQ2_XXS", 256, 66, 16, false},
    {"IQ2_XS", 256, 74, 17, false},
    {"IQ3_XXS", 256, 98, 18, false},
    {"IQ1_S", 256, 50, 19, false},
    {"IQ4_NL", 32, 18, 20, false},
    {"IQ3_S", 256, 110, 21, false},
    {"IQ2_S", 256, 82, 22, false},
    {"IQ4_XS", 256, 136, 23, false},
    {"IQ1_M", 256, 56, 29, false},
    {"TQ1_0", 256, 54, 34, false},
    {"TQ2_0", 256, 66, 35, false},
    {"MXFP4", 32, 17, 39, false},
    {"F64", 1, 8, 28, true},
    {"I8", 1, 1, 24, true},
    {"I16", 1, 2, 25, true},
    {"I32", 1, 4, 26, true},
    {"I64", 1, 8, 27, true},
    {"BOOL", 1, 1, -1, true},
    {"U8", 1, 1, -1, true},
    {"U16", 1, 2, -1, true},
    {"U32", 1, 4, -1, true},
    {"U64", 1, 8, -1, true},
    {"C64", 1, 8, -1, true},
    {"F8_E5M2", 1, 1, -1, true},
    {"F8_E4M3", 1, 1, -1, true},
    {"F8_E5M2FNUZ", 1, 1, -1, true},
    {"F8_E4M3FNUZ", 1, 1, -1, true},
    {"F8_E8M0", 1, 1, -1, true},
    {"F6_E2M3", 4, 3, -1, true},
    {"F6_E3M2", 4, 3, -1, true},
    {"F4", 2, 1, -1, true},
};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

const fl_stored_type *fl_stored_type_of_safetensors(const char *name) {
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        if (types[i].safetensors && strcmp(types[i].name, name) == 0) return &types[i];
    }
    return NULL;
}

const fl_stored_type *fl_stored_type_of_gguf(uint32_t id) {
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        if (types[i].gguf_id >= 0 && (uint32_t)types[i].gguf_id == id) return &types[i];
    }
    return NULL;
}

const fl_stored_type *fl_stored_type_of_dtype(fl_dtype type) {
    return &types[type];
}

fl_dtype fl_stored_type_dtype(const fl_stored_type *type) {
    if (type == NULL || type - types >= FL_DTYPE_COUNT) return FL_DTYPE_COUNT;
    return (fl_dtype)(type - types);
}
