/* Layouts and prompts: small files of our own in every layout, the exact texts made of them, and how faults
 * are named. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "harness/base/memory.h"
#include "harness/eval/hellaswag.h"
#include "harness/eval/prompt.h"
#include "harness/eval/task_config.h"
#include "harness/eval/wikitext.h"
#include "tests/support/fixture.h"

static const char *written(const char *name, const char *text) {
    static char path[512];
    char *slash;
    snprintf(path, sizeof path, "%s/%s", fl_test_folder(), name);
    for (slash = strchr(path + strlen(fl_test_folder()) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    fl_write_file(path, text, strlen(text));
    return path;
}

static fl_task_data read_as(const char *task, const char *path, bool shots) {
    const fl_task_kind *kind = fl_task_kind_find(task);
    const fl_reader_request request = {
        .path = path, .split = "test", .needs_shots = shots, .file_names = kind->file_names};
    fl_task_data data = {0};
    fl_error error = {0};
    if (kind->reader(&request, &data, &error) != FL_OK) fail_msg("%s", error.message);
    if (fl_task_data_finish(&data, &error) != FL_OK) fail_msg("%s", error.message);
    return data;
}

static void assert_fault(const char *task, const char *path, const char *message) {
    const fl_task_kind *kind = fl_task_kind_find(task);
    const fl_reader_request request = {.path = path, .split = "test", .file_names = kind->file_names};
    fl_task_data data = {0};
    fl_error error = {0};
    assert_int_equal(kind->reader(&request, &data, &error), FL_ERROR_FORMAT);
    if (strstr(error.message, message) == NULL) fail_msg("%s", error.message);
    fl_task_data_release(&data);
}

/* Context and continuation of one choice, against the whole texts. */
static void assert_prompt(const char *task, const fl_task_data *data, size_t document, size_t choice,
                          size_t shots, const char *context, const char *continuation) {
    const fl_task_kind *kind = fl_task_kind_find(task);
    const fl_task_document *of = &data->documents.items[document];
    const fl_task_document *pool[4] = {0};
    for (size_t i = 0; i < shots; i++)
        pool[i] = &data->pool.items[data->subjects[of->subject].shot_first + i];
    fl_text_buffer first = {0}, second = {0};
    fl_error error = {0};
    if (fl_prompt_build(kind->template, data->subjects[of->subject].name, of, choice, pool, shots, &first,
                        &second, &error) != FL_OK) {
        fail_msg("%s", error.message);
    }
    assert_string_equal(first.text, context);
    assert_string_equal(second.text, continuation);
    fl_text_buffer_release(&first);
    fl_text_buffer_release(&second);
}

static void write_mmlu(void) {
    written("mmlu/dev/odd_jobs_dev.csv",
            "Which tool drives nails?,a saw,a hammer,a file,a plane,B\nWhich cuts?,saw,glue,tape,wax,A\n");
    written("mmlu/test/odd_jobs_test.csv",
            "\" Which of these,\nis soft? \",stone ,wool,None,\"iron \"\"ore\"\"\",B\n");
    written("mmlu/dev/animals_dev.csv", "Q,1,2,3,4,D\n");
    written("mmlu/test/animals_test.csv",
            "\xEF\xBB\xBFWho barks?,cat,dog,cow,hen,B\r\nWho moos?,cat,dog,cow,hen,E\r\n");
}

static void test_mmlu_prompts_word_for_word(void **state) {
    (void)state;
    write_mmlu();
    char path[512];
    snprintf(path, sizeof path, "%s/mmlu", fl_test_folder());
    fl_task_data data = read_as("mmlu", path, true);
    assert_int_equal(data.subject_count, 2);
    assert_string_equal(data.subjects[0].name, "animals");
    assert_int_equal(data.subjects[0].count, 2);
    assert_int_equal(data.documents.items[1].gold, FL_GOLD_MISSING);
    assert_int_equal(data.note_count, 2);
    assert_non_null(strstr(data.notes[0], "animals_test.csv:1: byte-order mark skipped"));
    assert_non_null(strstr(data.notes[1], "animals_test.csv:2: answer \"E\" is none of the 4 choices"));
    assert_prompt("mmlu", &data, 2, 2, 1,
                  "The following are multiple choice questions (with answers) about odd jobs.\n\nWhich tool "
                  "drives nails?\nA. a "
                  "saw\nB. a hammer\nC. a file\nD. a plane\nAnswer: B\n\nWhich of these,\nis soft?\nA. stone "
                  "\nB. wool\nC. None\nD. "
                  "iron \"ore\"\nAnswer:",
                  " C");
    assert_prompt("mmlu_original", &data, 2, 0, 0,
                  "The following are multiple choice questions (with answers) about  odd jobs.\n\n Which of "
                  "these,\nis soft? "
                  "\nA. stone \nB. wool\nC. None\nD. iron \"ore\"\nAnswer:",
                  " A");
    assert_prompt("mmlu_mc", &data, 0, 1, 0,
                  "The following are multiple choice questions (with answers) about animals.\n\nWho "
                  "barks?\nA. cat\nB. dog\nC. "
                  "cow\nD. hen\nAnswer:",
                  " B");
    assert_prompt(
        "mmlu_continuation", &data, 2, 3, 2,
        "The following are questions (with answers) about odd jobs.\n\nQuestion: Which tool drives "
        "nails?\nAnswer: a "
        "hammer\n\nQuestion: Which cuts?\nAnswer: saw\n\nQuestion: Which of these,\nis soft?\nAnswer:",
        " iron \"ore\"");
    assert_prompt("mmlu_cloze", &data, 0, 1, 0,
                  "The following are questions about animals.\nQuestion: Who barks?\nAnswer:", " dog");
    fl_task_data_release(&data);
}

static void test_mmlu_json_lines_group_by_subject(void **state) {
    (void)state;
    const char *path =
        written("all.jsonl",
                "{\"question\": \"q1\", \"subject\": \"b\", \"choices\": [\"x\", \"y\"], \"answer\": 1}\n"
                "{\"question\": \"q2\", \"subject\": \"a\", \"choices\": [\"x\", \"y\"], \"answer\": 0}\n"
                "{\"question\": \"q3\", \"subject\": \"b\", \"choices\": [\"x\", \"y\"], \"answer\": \"A\"}\n"
                "{\"question\": \"q4\", \"subject\": \"b\", \"choices\": [\"x\", \"y\"], \"answer\": 1.5}\n");
    fl_task_data data = read_as("mmlu", path, false);
    assert_int_equal(data.subject_count, 2);
    assert_string_equal(data.documents.items[0].piece[0], "q2");
    assert_int_equal(data.documents.items[0].gold, 0);
    assert_int_equal(data.documents.items[2].index, 1);
    assert_int_equal(data.documents.items[2].gold, 0);
    assert_int_equal(data.documents.items[3].gold, FL_GOLD_MISSING);
    assert_int_equal(data.documents.items[3].line, 4);
    fl_task_data_release(&data);
}

static void test_arc_in_its_three_forms_gives_the_same_documents(void **state) {
    (void)state;
    static const char *const forms[] = {
        "{\"question\": {\"stem\": \"Why?\", \"choices\": [{\"text\": \"so\", \"label\": \"1\"}, {\"text\": "
        "\"no\", \"label\": \"2\"}, "
        "{\"text\": \"yes\", \"label\": \"3\"}]}, \"answerKey\": \"3\"}",
        "{\"question\": \"Why?\", \"choices\": {\"text\": [\"so\", \"no\", \"yes\"], \"label\": [\"A\", "
        "\"B\", \"C\"]}, \"answerKey\": \"C\"}",
        "[{\"instruction\": \"Please choose the correct answer to the question: Why?\\n\\nAnswer1: so "
        "Answer2: no Answer3: "
        "yes\\n\\nAnswer format: answer1/answer2/answer3\", \"answer\": \"answer3\"}]"};
    for (size_t i = 0; i < 3; i++) {
        fl_task_data data = read_as("arc_easy", written("arc.jsonl", forms[i]), false);
        assert_int_equal(data.documents.count, 1);
        assert_int_equal(data.documents.items[0].choices, 3);
        assert_int_equal(data.documents.items[0].gold, 2);
        assert_prompt("arc_easy", &data, 0, 1, 0, "Question: Why?\nAnswer:", " no");
        fl_task_data_release(&data);
    }
    fl_task_data data = read_as(
        "openbookqa",
        written("obqa.jsonl", "{\"question_stem\": \"Ice is\", \"choices\": {\"text\": [\"cold\", \"hot\"], "
                              "\"label\": [\"A\", \"B\"]}, \"answerKey\": \"A\"}"),
        false);
    assert_prompt("openbookqa", &data, 0, 1, 0, "Ice is", " hot");
    fl_task_data_release(&data);
}

static void test_piqa_winogrande_and_lambada(void **state) {
    (void)state;
    written("goals-labels.lst", "1\r\n0");
    const char *path =
        written("goals.jsonl", "{\"goal\": \"g\", \"sol1\": \"one\", \"sol2\": \"two\"}\n{\"goal\": \"h\", "
                               "\"sol1\": \"3\", \"sol2\": \"4\"}\n");
    fl_task_data data = read_as("piqa", path, false);
    assert_int_equal(data.documents.items[0].gold, 1);
    assert_int_equal(data.documents.items[1].gold, 0);
    assert_int_equal(data.file_count, 2);
    fl_task_data_release(&data);
    written("goals-labels.lst", "1\n0\n1\n");
    char goals[512];
    snprintf(goals, sizeof goals, "%s/goals.jsonl", fl_test_folder());
    assert_fault("piqa", goals, "goals-labels.lst: 3 labels for the 2 rows of");

    path = written("w.jsonl",
                   "{\"sentence\": \"The cup fell off the table because _ was unstable. \", \"option1\": "
                   "\"the cup\", \"option2\": "
                   "\"the table\", \"answer\": \"2\"}\n");
    data = read_as("winogrande", path, false);
    assert_int_equal(data.documents.items[0].gold, 1);
    assert_prompt("winogrande", &data, 0, 1, 0, "The cup fell off the table because the table",
                  " was unstable.");
    fl_task_data_release(&data);

    path = written(
        "l.jsonl",
        "{\"text\": \"He took his hat\\nand left\"}\n{\"context\": \"a b\", \"continuation\": \"c\"}\n");
    data = read_as("lambada_openai", path, false);
    assert_prompt("lambada_openai", &data, 0, 0, 0, "He took his hat\nand", " left");
    assert_prompt("lambada_openai", &data, 1, 0, 0, "a b", " c");
    fl_task_data_release(&data);
}

static void test_hellaswag_cleans_its_texts(void **state) {
    (void)state;
    const char *path =
        written("hs.jsonl", "{\"activity_label\": \"Baking\", \"ctx_a\": \"She [step] mixes flour. "
                            "[title] Add eggs.\", \"ctx_b\": \"sHE then\", "
                            "\"endings\": [\" stirs   it [x]. \", \"[a]b]c\"], \"label\": \"1\"}\n");
    fl_task_data data = read_as("hellaswag", path, false);
    assert_int_equal(data.documents.items[0].gold, 1);
    assert_prompt("hellaswag", &data, 0, 0, 0, "Baking: She mixes flour.. Add eggs. She then",
                  " stirs  it .");
    assert_prompt("hellaswag", &data, 0, 1, 0, "Baking: She mixes flour.. Add eggs. She then", " b]c");
    fl_task_data_release(&data);
}

static void test_truthfulqa_from_lists_and_from_the_question_file(void **state) {
    (void)state;
    const char *path =
        written("mc_task.json",
                "[{\"question\": \"Is it?\", \"mc1_targets\": {\"No.\": 0, \"Yes.\": 1}, \"mc2_targets\": "
                "{\"choices\": [\"Yes.\", \"Sure.\", \"No.\"], \"labels\": [1, 1, 0]}}]");
    fl_task_data data = read_as("truthfulqa_mc1", path, false);
    assert_int_equal(data.documents.items[0].gold, 1);
    fl_task_data_release(&data);
    data = read_as("truthfulqa_mc2", path, false);
    assert_int_equal(data.documents.items[0].choices, 3);
    assert_int_equal(data.documents.items[0].correct[1], 1);
    assert_int_equal(data.documents.items[0].correct[2], 0);
    fl_task_data_release(&data);
    path = written(
        "t.csv",
        "Type,Question,Best Answer,Correct Answers,Incorrect Answers\nx,Is it?,Yes,Yes; Sure ;,No; Never\n");
    data = read_as("truthfulqa_mc2", path, false);
    assert_int_equal(data.documents.items[0].choices, 4);
    assert_string_equal(data.documents.items[0].choice[1], "Sure");
    assert_int_equal(data.note_count, 1);
    fl_text_buffer context = {0}, continuation = {0};
    assert_int_equal(fl_prompt_build(&fl_template_truthfulqa, "", &data.documents.items[0], 0, NULL, 0,
                                     &context, &continuation, NULL),
                     FL_OK);
    assert_true(strncmp(context.text, "Q: What is human life expectancy", 32) == 0);
    assert_non_null(strstr(context.text, "Barcelona, Spain.\n\nQ: Is it?\nA:"));
    fl_text_buffer_release(&context);
    fl_text_buffer_release(&continuation);
    fl_task_data_release(&data);
}

static void test_faults_in_task_files_name_file_and_line(void **state) {
    (void)state;
    char path[512];
    written("bad/test/x_test.csv", "q,a,b,c,d,A\nq,a,b,c,A\n");
    snprintf(path, sizeof path, "%s/bad", fl_test_folder());
    assert_fault("mmlu", path, "x_test.csv:2: 5 cells instead of 6");
    assert_fault(
        "arc_easy",
        written("b.jsonl", "{\"question\": {\"stem\": \"s\", \"choices\": []}, \"answerKey\": \"A\"}"),
        "b.jsonl:1: fewer than two choices");
    assert_fault(
        "arc_easy",
        written("b.jsonl",
                "\n{\"question\": {\"stem\": \"s\", \"choices\": [{\"text\": 3}]}, \"answerKey\": \"A\"}"),
        "b.jsonl:2: a choice needs \"text\" and \"label\" strings");
    assert_fault("winogrande",
                 written("b.jsonl", "{\"sentence\": \"no gap\", \"option1\": \"a\", \"option2\": \"b\"}"),
                 "b.jsonl:1: \"sentence\" has no \"_\"");
    assert_fault("lambada_openai", written("b.jsonl", "{\"text\": \"word\"}"),
                 "b.jsonl:1: \"text\" has no space");
    assert_fault("hellaswag", written("b.jsonl", "{\"activity_label\": \"x\"}"), "b.jsonl:1: no \"ctx_a\"");
    assert_fault("truthfulqa_mc1", written("b.jsonl", "{\"question\": \"q\", \"mc1_targets\": {\"a\": 2}}"),
                 "b.jsonl:1: a target's label is not 0 or 1");
    assert_fault("truthfulqa_mc2", written("b.csv", "Question,Best Answer\n"),
                 "b.csv:1: the header has no \"Correct Answers\"");
    assert_fault("multiple_choice",
                 written("b.jsonl", "{\"question\": \"q\", \"choices\": [\"a\"], \"answer\": 0}"),
                 "b.jsonl:1: \"choices\" has fewer than two choices");
}

static void test_readers_survive_every_failed_allocation(void **state) {
    (void)state;
    write_mmlu();
    char mmlu[512], rows[512];
    snprintf(mmlu, sizeof mmlu, "%s/mmlu", fl_test_folder());
    snprintf(rows, sizeof rows, "%s",
             written("rows.jsonl", "{\"question\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}\n"));
    const struct {
        fl_reader read;
        fl_reader_request request;
    } cases[] = {{fl_read_hendrycks, {.path = mmlu, .split = "test", .needs_shots = true}},
                 {fl_read_choices, {.path = rows}}};
    for (size_t c = 0; c < 2; c++) {
        fl_status status = FL_ERROR_MEMORY;
        for (size_t n = 1; status != FL_OK; n++) {
            assert_true(n < 1000);
            fl_task_data data = {0};
            fl_memory_fail_at(n);
            status = cases[c].read(&cases[c].request, &data, NULL);
            if (status == FL_OK) status = fl_task_data_finish(&data, NULL);
            fl_memory_fail_at(0);
            assert_true(status == FL_OK || status == FL_ERROR_MEMORY);
            fl_task_data_release(&data);
        }
    }
}

static void test_wikitext_pages_and_detokeniser(void **state) {
    (void)state;
    static const char text[] =
        " \n = One = \n \n Text , here . \n = = Part = = \n more \n = Two = \n \n x \n";
    fl_text_span *pages = NULL;
    size_t count = 0;
    assert_int_equal(fl_wikitext_pages(text, sizeof text - 1, &pages, &count, NULL), FL_OK);
    assert_int_equal(count, 2);
    assert_int_equal(pages[0].start, 2);
    assert_int_equal(pages[0].line, 2);
    assert_true(text[pages[0].start + pages[0].bytes] == '\n');
    assert_true(strncmp(text + pages[1].start, " = Two = ", 9) == 0);
    fl_memory_free(pages);
    fl_text_buffer out = {0};
    static const char page[] =
        " It 's the dogs ' 5 @,@ 000 @.@ 5 ( a b ) \" c \" [ d ; e ] , 20 \xC2\xB0 N \n = = = H = = = \n";
    assert_int_equal(fl_wikitext_detokenise(page, sizeof page - 1, &out, NULL), FL_OK);
    assert_string_equal(out.text, " It's the dogs' 5,000.5 (a b) \"c\" [d; e], 20\xC2"
                                  "\xB0"
                                  "N\n=== H ===\n");
    fl_text_buffer_release(&out);
}

static void test_sampled_shots_leave_the_asked_document_out_and_advance(void **state) {
    (void)state;
    char text[4096] = "";
    for (int i = 0; i < 12; i++) {
        char row[128];
        snprintf(row, sizeof row, "{\"goal\": \"g%d\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 0}\n", i);
        strcat(text, row);
    }
    fl_task_data data = read_as("piqa", written("pool.jsonl", text), false);
    fl_shot_source shots;
    assert_int_equal(fl_shots_start(&shots, FL_SHOTS_SAMPLED, 3, 1234, &data, 0, NULL), FL_OK);
    fl_python_random random;
    fl_python_random_seed(&random, 1234);
    for (size_t d = 0; d < 12; d++) {
        size_t drawn[4], kept = 0;
        assert_int_equal(fl_shots_next(&shots, &data.documents.items[d], NULL), FL_OK);
        assert_int_equal(fl_python_random_sample(&random, 12, 4, drawn, NULL), FL_OK);
        assert_int_equal(shots.chosen_count, 3);
        for (size_t i = 0; i < 4 && kept < 3; i++) {
            if (drawn[i] == d) continue;
            assert_int_equal(shots.chosen[kept++]->index, drawn[i]);
        }
    }
    fl_shots_release(&shots);
    fl_error error;
    assert_int_equal(fl_shots_start(&shots, FL_SHOTS_SAMPLED, 12, 1234, &data, 0, &error), FL_ERROR_ARGUMENT);
    assert_int_equal(fl_shots_start(&shots, FL_SHOTS_FIRST, 1, 1234, &data, 0, &error), FL_ERROR_ARGUMENT);
    assert_string_equal(error.message, "1 shots asked for, but the pool has only 0 documents");
    fl_task_data_release(&data);
}

static void test_task_entries_of_a_config(void **state) {
    (void)state;
    static const struct {
        const char *text, *message; /* NULL: fine */
    } cases[] = {
        {"[{name: mmlu, path: x, shots: 5, limit: 0.1}, {name: mmlu, label: mmlu_zero, path: x}]", NULL},
        {"[{name: mmul, path: x}]", "t.yaml:1:9: unknown task \"mmul\"; did you mean \"mmlu\"?"},
        {"[{name: mmlu, path: x}, {name: mmlu, path: y}]", "two tasks are called \"mmlu\""},
        {"[{name: mmlu}]", "task mmlu needs a path"},
        {"[{name: niah_single_2}]", "task niah_single_2 needs a path"},
        {"[{name: piqa, path: x, limit: 2.5}]", "limit is neither below 1 nor a whole number"},
        {"[{name: truthfulqa_mc1, path: x, shots: 2}]", "takes no shots"},
        {"[{name: piqa, path: x, label: a/b}]", "cannot be a label"},
        {"[{name: perplexity, path: x, definition: strided, window: 8, stride: 9}]",
         "stride 9 is larger than the window of 8"},
        {"[{name: piqa, path: x, shot: 2}]", "shots"},
        {"{name: piqa}", "tasks is not a list"},
        {"[piqa]", "a task is a mapping with a name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_document *document = NULL;
        fl_error error = {0};
        fl_task_config_list list;
        assert_int_equal(
            fl_document_parse_text(cases[i].text, strlen(cases[i].text), "t.yaml", &document, &error), FL_OK);
        const fl_status status = fl_task_config_bind(fl_document_root(document), NULL, &list, &error);
        if (cases[i].message == NULL) {
            assert_int_equal(status, FL_OK);
            assert_int_equal(list.count, 2);
            assert_int_equal(list.items[0].shots, 5);
            assert_string_equal(list.items[0].label, "mmlu");
            assert_string_equal(list.items[1].label, "mmlu_zero");
            assert_int_equal(list.items[1].seed, 1234);
            fl_task_config_release(&list);
        } else {
            assert_int_equal(status, FL_ERROR_ARGUMENT);
            if (strstr(error.message, cases[i].message) == NULL) fail_msg("%s", error.message);
        }
        fl_document_destroy(document);
    }
}

static void test_every_task_has_a_unique_name_and_what_its_form_needs(void **state) {
    (void)state;
    for (size_t i = 0; i < fl_task_kind_count(); i++) {
        const fl_task_kind *kind = fl_task_kind_at(i);
        assert_ptr_equal(fl_task_kind_find(kind->name), kind);
        assert_non_null(kind->summary);
        const bool worded = kind->form == FL_TASK_CHOICES || kind->form == FL_TASK_TRUE_MASS ||
                            kind->form == FL_TASK_LAST_WORD;
        assert_true(worded == (kind->template != NULL));
        assert_true((kind->reader == NULL) == (kind->retrieval != FL_RETRIEVAL_NONE));
    }
    assert_null(fl_task_kind_find("no_such_task"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mmlu_prompts_word_for_word, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_mmlu_json_lines_group_by_subject, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_arc_in_its_three_forms_gives_the_same_documents,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_piqa_winogrande_and_lambada, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_hellaswag_cleans_its_texts, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_truthfulqa_from_lists_and_from_the_question_file,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_faults_in_task_files_name_file_and_line, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test_setup_teardown(test_readers_survive_every_failed_allocation, fl_test_folder_make,
                                        fl_test_folder_remove),
        cmocka_unit_test(test_wikitext_pages_and_detokeniser),
        cmocka_unit_test_setup_teardown(test_sampled_shots_leave_the_asked_document_out_and_advance,
                                        fl_test_folder_make, fl_test_folder_remove),
        cmocka_unit_test(test_task_entries_of_a_config),
        cmocka_unit_test(test_every_task_has_a_unique_name_and_what_its_form_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
