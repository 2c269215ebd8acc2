#include "harness/run/id_lists.h"

#include "analysis/output_file.h"

void fl_id_lists_print(FILE *stream, const fl_sequences *sequences) {
    fputc('[', stream);
    for (size_t s = 0; s < sequences->count; s++) {
        fputs(s > 0 ? ",\n [" : "[", stream);
        for (size_t t = 0; t < sequences->lengths[s]; t++)
            fprintf(stream, "%s%d", t > 0 ? ", " : "", (int)sequences->ids[s][t]);
        fputc(']', stream);
    }
    fputs("]\n", stream);
}

fl_status fl_id_lists_write(const char *path, const fl_sequences *sequences, fl_error *error) {
    fl_output_file file;
    FL_TRY(fl_output_file_open(path, &file, error));
    fl_id_lists_print(file.stream, sequences);
    return fl_output_file_close(&file, error);
}
