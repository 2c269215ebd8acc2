#include "harness/run/cell_parts.h"

#include <string.h>

static bool is_given(const fl_node *node) {
    return node != NULL && node->kind != FL_NODE_NULL;
}

static fl_status bind_ablations(const fl_node *node, fl_cell_parts *out, fl_error *error) {
    if (!is_given(node)) return FL_OK;
    if (node->kind != FL_NODE_SEQUENCE) {
        return fl_node_error(node, error, "ablate: a list of linear, exact, convolution, gate");
    }
    for (size_t i = 0; i < node->count; i++) {
        int branch = 0;
        FL_TRY(fl_node_to_choice(node->children[i], fl_branch_names, &branch, error));
        for (size_t j = 0; j < out->ablation_count; j++) {
            if (out->ablations[j] == (fl_branch)branch)
                return fl_node_error(node->children[i], error, "ablate: %s is listed twice",
                                     fl_branch_names[branch]);
        }
        out->ablations[out->ablation_count++] = (fl_branch)branch;
    }
    return FL_OK;
}

static fl_status at_task(const fl_experiment *experiment, size_t task, const char *key, fl_status status,
                         fl_error *error) {
    const fl_node *node = task < experiment->tasks->count ? experiment->tasks->children[task] : NULL;
    const fl_node *path = node != NULL ? fl_node_get(node, key) : NULL;
    return fl_node_place_error(path != NULL ? path : node, "tasks", status, error);
}

static fl_status hash_tasks(const fl_experiment *experiment, fl_cell_parts *out, fl_error *error) {
    fl_hash_stream *data = NULL, *key = NULL;
    fl_status status = FL_OK;
    FL_TRY_DONE(status, fl_hash_stream_create(&data, error));
    FL_TRY_DONE(status, fl_hash_stream_create(&key, error));
    for (size_t i = 0; i < out->tasks.count; i++) {
        const char *paths[] = {out->tasks.items[i].path, out->tasks.items[i].shots_path};
        for (size_t j = 0; j < 2; j++) {
            fl_hash hash = {{0}};
            if (paths[j] != NULL) status = fl_hash_path(paths[j], &hash, error);
            FL_TRY_DONE(status, at_task(experiment, i, j == 0 ? "path" : "shots_path", status, error));
            fl_hash_stream_add(data, hash.text, sizeof hash.text);
        }
    }
    for (size_t i = 0; i < fl_resolved_count(experiment->resolved); i++) {
        const char *name = NULL, *value = NULL;
        bool is_default = false;
        fl_resolved_at(experiment->resolved, i, &name, &value, &is_default);
        if (strncmp(name, "tasks", 5) != 0) continue;
        fl_hash_stream_add(key, name, strlen(name) + 1);
        fl_hash_stream_add(key, value, strlen(value) + 1);
    }
    out->tasks_hash = fl_hash_stream_value(data);
    out->tasks_key = fl_hash_stream_value(key);
done:
    fl_hash_stream_destroy(data);
    fl_hash_stream_destroy(key);
    return status;
}

static fl_status bind_training(fl_experiment *experiment, fl_cell_parts *out, fl_error *error) {
    if (!is_given(experiment->train)) return FL_OK;
    bool none = fl_train_config_is_none(experiment->train);
    FL_TRY(fl_train_config_bind(experiment->train, none ? NULL : experiment->resolved, &out->train, error));
    if (none) {
        fl_train_config_release(&out->train);
        experiment->train = NULL;
        return FL_OK;
    }
    out->has_train = true;
    if (out->train.self_generated.node != NULL) return FL_OK;
    const char *path = out->train.path != NULL ? out->train.path : out->train.ids;
    fl_status status = fl_hash_path(path, &out->train_hash, error);
    const char *key = out->train.path != NULL ? "path" : "ids";
    return fl_node_place_error(fl_node_get(experiment->train, key),
                               out->train.path != NULL ? "train.path" : "train.ids", status, error);
}

static fl_status bind(fl_experiment *experiment, fl_cell_parts *out, fl_error *error) {
    FL_TRY(bind_training(experiment, out, error));
    FL_TRY(bind_ablations(experiment->measure.ablate, out, error));
    if (!is_given(experiment->tasks)) return FL_OK;
    FL_TRY(fl_task_config_bind(experiment->tasks, experiment->resolved, &out->tasks, error));
    return out->tasks.count > 0 ? hash_tasks(experiment, out, error) : FL_OK;
}

fl_status fl_cell_parts_bind(fl_experiment *experiment, fl_cell_parts *out, fl_error *error) {
    memset(out, 0, sizeof *out);
    fl_status status = bind(experiment, out, error);
    if (status != FL_OK) fl_cell_parts_release(out);
    return status;
}

void fl_cell_parts_release(fl_cell_parts *parts) {
    if (parts->has_train) fl_train_config_release(&parts->train);
    fl_task_config_release(&parts->tasks);
    memset(parts, 0, sizeof *parts);
}
